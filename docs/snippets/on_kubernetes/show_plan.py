"""The objects of a launch as YAML, made without a cluster."""

import launchpad as lp
from counting import make_program

# part: plan
plan = lp.plan(make_program(), "kubernetes", image="registry.example.org/me/project:3")
print(plan.to_yaml())
# end
