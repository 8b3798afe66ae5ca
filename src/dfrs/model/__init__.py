"""What is shared by everything: resources, instances, allocations, errors, tolerances."""
