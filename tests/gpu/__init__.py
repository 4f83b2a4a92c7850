"""Programs on a real GPU: `make test-gpu`.

Without one, these tests are skipped, except with LP_GPU_STAND_IN=1. The CPU then stands in for a pretended
GPU: the same programs run as far as they can, and what only a GPU can show is skipped.
"""
