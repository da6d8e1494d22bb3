"""What a cloud's own interfaces call the disks of the catalogue's families."""

from __future__ import annotations

AZURE_SKUS = {
    "azure/PremiumSSD": "Premium_LRS",
    "azure/StandardSSD": "StandardSSD_LRS",
    "azure/StandardHDD": "Standard_LRS",
    "azure/PremiumSSDv2": "PremiumV2_LRS",
    "azure/UltraDisk": "UltraSSD_LRS",
}
"""By the family in the catalogue; the same in Azure's templates, its command and Terraform."""
