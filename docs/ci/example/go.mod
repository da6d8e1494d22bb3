module example.com/disk

go 1.21
