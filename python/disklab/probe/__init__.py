"""Is a disk what it promises to be?"""
