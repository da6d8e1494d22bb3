"""disklab: which disks should my distributed database live on?"""
