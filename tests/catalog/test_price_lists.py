"""Vendors' price lists: what of them disklab counts with, and what it refuses."""

from __future__ import annotations

import csv
import json
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from disklab.catalog import NoPrice, Price, load_catalog, vm_price, volume_price
from disklab.catalog.facts import ListedPrice, PriceTerms
from disklab.catalog.price_lists import Imported, _keep, document, read, whole
from disklab.errors import UserError

from tests.programs import ended

CATALOG = load_catalog([])
DISKLAB = Path(sys.executable).with_name("disklab")


def item(**changes: Any) -> dict[str, Any]:
    """Return a price as Azure's service lists it."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": 141.0,
        "unitPrice": 141.0,
        "armRegionName": "northeurope",
        "location": "EU North",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterName": "P30 LRS Disk",
        "productName": "Premium SSD Managed Disks",
        "skuName": "P30 LRS",
        "serviceName": "Storage",
        "unitOfMeasure": "1/Month",
        "type": "Consumption",
        "armSkuName": "Premium_SSD_Managed_Disk_P30",
    } | changes


def machine(price: float, **changes: Any) -> dict[str, Any]:
    return item(
        retailPrice=price,
        meterName="L8s v3",
        productName="Virtual Machines Lsv3 Series",
        skuName="L8s v3",
        serviceName="Virtual Machines",
        unitOfMeasure="1 Hour",
        armSkuName="Standard_L8s_v3",
        **changes,
    )


def by_size(product: str, meter: str, price: float) -> dict[str, Any]:
    return item(productName=product, meterName=meter, retailPrice=price, unitOfMeasure="1/Hour")


AZURE = [
    item(),
    item(meterName="P30 LRS Disk Mount", retailPrice=7.0),
    item(meterName="P30 ZRS Disk", retailPrice=211.0),
    item(tierMinimumUnits=100.0, retailPrice=1.0),
    item(type="Reservation", reservationTerm="1 Year", retailPrice=1608.0),
    machine(0.7),
    machine(1.1) | {"productName": "Virtual Machines Lsv3 Series Windows"},
    machine(0.1) | {"skuName": "L8s v3 Spot"},
    machine(0.2) | {"skuName": "L8s v3 Low Priority"},
    machine(0.5, type="DevTestConsumption"),
    machine(4380.0, type="Reservation", reservationTerm="1 Year"),
    machine(8760.0, type="Reservation", reservationTerm="3 Years"),
    machine(0.9) | {"armSkuName": "Standard_X1_of_next_year"},
    by_size("Azure Premium SSD v2", "Premium LRS Provisioned Capacity", 0.000123),
    by_size("Azure Premium SSD v2", "Premium LRS Provisioned IOPS", 0.0000073),
    by_size("Azure Premium SSD v2", "Premium LRS Provisioned Throughput (MBps)", 0.00006),
]


def usd(price: object) -> float:
    assert isinstance(price, Price), price
    return price.usd_per_month


def imported(path: Path, *regions: str) -> Path:
    """Return a catalogue file made of a price list."""
    made = path.with_suffix(".yaml")
    made.write_text(yaml.safe_dump(document([(path, read(path, CATALOG, regions))])))
    return made


def test_prices_of_azure_are_counted_with(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps({"BillingCurrency": "USD", "Items": AZURE, "NextPageLink": None}))
    found = read(path, CATALOG)
    assert (found.vendor, found.unknown, found.clashes) == ("azure", 1, [])
    catalog = load_catalog([imported(path)])
    hourly_by_terms: dict[PriceTerms, float] = {
        "pay-as-you-go": 0.7,
        "spot": 0.1,
        "reserved-1y": 4380 / 8760,
        "reserved-3y": 8760 / (3 * 8760),
    }
    for terms, hourly in hourly_by_terms.items():
        price = vm_price(catalog, "azure/Standard_L8s_v3", region="northeurope", terms=terms)
        assert isinstance(price, Price)
        assert price.usd_per_month == pytest.approx(hourly * 730, abs=0.01)
        assert (price.region, price.terms) == ("northeurope", terms)
    assert usd(volume_price(catalog, "2 x azure/P30", region="northeurope")) == 282.0
    assert (
        usd(volume_price(catalog, "azure/P30", region="northeurope", terms="reserved-1y")) == 134.0
    )
    # What nobody sells for three years costs what it costs by the hour.
    loose = volume_price(catalog, "azure/P30", region="northeurope", terms="reserved-3y")
    assert isinstance(loose, Price)
    assert (loose.usd_per_month, loose.terms) == (141.0, "pay-as-you-go")
    expected = 730 * (250 * 0.000123 + 7000 * 0.0000073 + 125 * 0.00006)
    assert usd(
        volume_price(catalog, "azure/PremiumV2(250GiB, 10000 IOPS, 250 MB/s)", region="northeurope")
    ) == pytest.approx(expected, abs=0.01)


def test_a_price_of_the_region_goes_before_one_of_another(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(AZURE))
    catalog = load_catalog([imported(path)])
    here = vm_price(catalog, "azure/Standard_L8s_v3", region="eastus")
    assert isinstance(here, Price)
    assert here.region == "eastus"
    other = vm_price(catalog, "azure/Standard_L8s_v3", region="mars", terms="spot")
    assert isinstance(other, Price)
    assert other.doubt("mars", date(2026, 11, 23)) == "of northeurope, not of mars"
    none = vm_price(catalog, "azure/Standard_L16s_v3", terms="spot")
    assert isinstance(none, NoPrice)
    assert "disklab prices" in none.reason


def test_an_old_price_is_told() -> None:
    price = Price(1.0, "East US", "2022-10-04", ("x",), "published")
    assert price.doubt("eastus", date(2026, 11, 23)) == "of 2022-10-04, 50 months old"
    assert price.doubt("eastus", date(2023, 1, 1)) is None
    undated = Price(1.0, "East US", "unknown (2024-2026)", ("x",), "published")
    assert "uncertain date" in (undated.doubt("eastus", date(2026, 11, 23)) or "")


def offer(**changes: str) -> dict[str, str]:
    """Return a line of AWS's offer file, by its columns."""
    return {
        "SKU": "A",
        "OfferTermCode": "B",
        "TermType": "OnDemand",
        "StartingRange": "0",
        "Unit": "Hrs",
        "PricePerUnit": "0.624",
        "Currency": "USD",
        "LeaseContractLength": "",
        "PurchaseOption": "",
        "OfferingClass": "",
        "Product Family": "Compute Instance",
        "Instance Type": "i3.2xlarge",
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "Volume API Name": "",
        "CapacityStatus": "Used",
        "Group": "",
        "Pre Installed S/W": "NA",
        "Region Code": "eu-west-1",
    } | changes


def test_only_two_prices_of_one_name_clash_and_the_higher_counts() -> None:
    found = Imported("azure", "2026-11-20")
    for amount in ("0.5", "0.5", "0.25", "0.1"):
        _keep(found, ListedPrice("vm", "D2", Decimal(amount), "eastus", "USD"), "azure/D2")
    assert found.clashes == ["azure/D2 in eastus, pay-as-you-go"] * 2
    (prices,) = found.lists.values()
    assert (prices, found.kept) == ({"vms": {"azure/D2": 0.5}}, 1)


RESERVED = {"TermType": "Reserved", "OfferingClass": "standard", "LeaseContractLength": "1yr"}
GP3 = {"Volume API Name": "gp3", "Instance Type": "", "Operating System": ""}
AWS = [
    offer(),
    offer(**{"Operating System": "Windows", "PricePerUnit": "1.0"}),
    offer(Tenancy="Dedicated", PricePerUnit="2.0"),
    offer(CapacityStatus="UnusedCapacityReservation", PricePerUnit="0.624"),
    offer(**RESERVED, PurchaseOption="No Upfront", PricePerUnit="0.4"),
    offer(**RESERVED, PurchaseOption="Partial Upfront", PricePerUnit="0.2"),
    offer(**GP3, **{"Product Family": "Storage", "Unit": "GB-Mo", "PricePerUnit": "0.088"}),
    offer(
        **GP3,
        **{"Product Family": "System Operation", "Group": "EBS IOPS"},
        Unit="IOPS-Mo",
        PricePerUnit="0.0055",
    ),
    offer(
        **GP3,
        **{"Product Family": "Provisioned Throughput"},
        Unit="GiBps-mo",
        PricePerUnit="45.056",
    ),
]


def aws_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        file.write('"FormatVersion","v1.0"\n"Disclaimer","x"\n')
        file.write('"Publication Date","2026-11-20T00:00:00Z"\n"Version","1"\n')
        file.write('"OfferCode","AmazonEC2"\n')
        table = csv.DictWriter(file, list(AWS[0]), quoting=csv.QUOTE_ALL)
        table.writeheader()
        table.writerows(AWS)


def aws_json(path: Path) -> None:
    """Write the same prices in AWS's other form."""
    names = {"Instance Type": "instanceType", "Operating System": "operatingSystem"}
    names |= {"Tenancy": "tenancy", "Volume API Name": "volumeApiName", "Group": "group"}
    names |= {"CapacityStatus": "capacitystatus", "Pre Installed S/W": "preInstalledSw"}
    names |= {"Region Code": "regionCode"}
    terms = ("LeaseContractLength", "PurchaseOption", "OfferingClass")
    products: dict[str, Any] = {}
    by_kind: dict[str, dict[str, Any]] = {"OnDemand": {}, "Reserved": {}}
    for number, row in enumerate(AWS):
        sku = f"S{number}"
        attributes = {names[k]: v for k, v in row.items() if k in names}
        products[sku] = {"productFamily": row["Product Family"], "attributes": attributes}
        amount = {row["Currency"]: row["PricePerUnit"]}
        price = {"unit": row["Unit"], "beginRange": "0", "pricePerUnit": amount}
        bound = {k: row[k] for k in terms if row[k]}
        by_kind[row["TermType"]][sku] = {
            "T": {"termAttributes": bound, "priceDimensions": {"D": price}}
        }
    told = {"formatVersion": "v1.0", "offerCode": "AmazonEC2"}
    told |= {"publicationDate": "2026-11-20T00:00:00Z"}
    path.write_text(json.dumps({**told, "products": products, "terms": by_kind}))


@pytest.mark.parametrize(("name", "write"), [("index.csv", aws_csv), ("index.json", aws_json)])
def test_prices_of_aws_are_counted_with(tmp_path: Path, name: str, write: Any) -> None:
    path = tmp_path / name
    write(path)
    found = read(path, CATALOG)
    assert (found.vendor, found.date, found.clashes) == ("aws", "2026-11-20", [])
    catalog = load_catalog([imported(path)])
    assert usd(vm_price(catalog, "aws/i3.2xlarge", region="eu-west-1")) == pytest.approx(
        0.624 * 730, abs=0.01
    )
    assert usd(
        vm_price(catalog, "aws/i3.2xlarge", region="eu-west-1", terms="reserved-1y")
    ) == pytest.approx(0.4 * 730, abs=0.01)
    # 3,000 IOPS and 125 MB/s come with the volume.
    expected = 1000 * 0.088 + 2000 * 0.0055 + 125 * 45.056 / 1024
    assert usd(
        volume_price(catalog, "aws/gp3(1000GiB, 5000 IOPS, 250 MB/s)", region="eu-west-1")
    ) == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "is neither Azure's list"),
        ("title: an experiment", "is neither Azure's list"),
        ('{"Items": [{"armRegionName": "eastus"}]}', "Field required"),
        ('{"Items": [{"armRegionName": ', "JSON"),
        (json.dumps([item(armSkuName="x", meterName="P31 LRS Disk")]), "has no price of a disk"),
        (json.dumps([item(retailPrice=-1.0)]), "greater than or equal to 0"),
        ('"FormatVersion","v1.0"\n"OfferCode","AmazonS3"\n', "is not an offer file of EC2"),
        ('{"offerCode": "AmazonEC2", "products": []}', "is not an offer file of EC2"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, rule: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(content)
    with pytest.raises(UserError, match=rule):
        read(path, CATALOG)


def test_a_list_that_is_not_there_is_not_called_too_large(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file or directory; name a vendor's list"):
        read(tmp_path / "azure.json", CATALOG)


def test_the_command_writes_a_catalogue_file_and_never_over_one(tmp_path: Path) -> None:
    path, out = tmp_path / "list.json", tmp_path / "mine.yaml"
    path.write_text(json.dumps(AZURE))
    arguments = [str(DISKLAB), "prices", str(path), "--out", str(out), "--region", "northeurope"]
    told = ended(arguments, code=0)
    assert "9 prices kept, 1 of VM sizes and disks" in told.stdout.replace("\n", " ")
    catalog = load_catalog([out])
    assert isinstance(vm_price(catalog, "azure/Standard_L8s_v3", terms="spot"), Price)
    before = out.read_bytes()
    again = ended(arguments)
    assert (again.returncode, out.read_bytes()) == (2, before)
    assert "exists already and is not overwritten" in again.stderr.replace("\n", " ")
    elsewhere = ended(
        [*arguments[:3], "--out", str(tmp_path / "x.yaml"), "--region", "mars"], code=2
    )
    assert "northeurope" in elsewhere.stderr


def io2(**changes: str) -> list[dict[str, str]]:
    """Return io2 as AWS lists it: its storage by the GB-month."""
    base = {"Volume API Name": "io2", "Instance Type": "", "Operating System": ""}
    storage = {"Product Family": "Storage", "Unit": "GB-month", "PricePerUnit": "0.125"}
    iops = {"Product Family": "System Operation", "Group": "EBS IOPS", "Unit": "IOPS-Mo"}
    return [offer(**base, **storage), offer(**base, **iops, PricePerUnit="0.065", **changes)]


def test_io2_is_read_by_the_month_and_never_without_its_iops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "index.json", AWS
    monkeypatch.setattr(sys.modules[__name__], "AWS", [*others, *io2()])
    aws_json(path)
    catalog = load_catalog([imported(path)])
    price = volume_price(catalog, "aws/io2(100GiB, 1000 IOPS)", region="eu-west-1")
    assert isinstance(price, Price)
    assert price.usd_per_month == pytest.approx(100 * 0.125 + 1000 * 0.065)
    # A list whose IOPS have another unit gives no free IOPS.
    monkeypatch.setattr(sys.modules[__name__], "AWS", [*others, io2()[0]])
    aws_json(path)
    found = read(path, CATALOG)
    assert found.incomplete == ["aws/io2 in eu-west-1 has no price of IOPS"]
    assert not any("aws/io2" in some.get("formulas", {}) for some in found.lists.values())


LINK = "https://prices.azure.com/api/retail/prices?$skip="


@pytest.mark.parametrize(
    ("links", "whole_list"),
    [
        ([None], True),
        ([f"{LINK}1000"], False),
        ([f"{LINK}1000", f"{LINK}2000"], False),
        ([f"{LINK}1000", None], True),
        ([f"{LINK}2000", None], False),
        ([f"{LINK}1000", f"{LINK}2000", None], True),
    ],
)
def test_a_part_of_a_list_does_not_pass_for_it(
    tmp_path: Path, links: list[str | None], whole_list: bool
) -> None:
    pages = []
    for number, link in enumerate(links):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"Items": AZURE, "NextPageLink": link}))
        pages.append((path, read(path, CATALOG)))
    if whole_list:
        whole(pages)
        return
    with pytest.raises(UserError) as caught:
        whole(pages)
    assert "save every page" in str(caught.value)
