"""Two actors of a Ray that is started for it, on one node."""

import ray
from measure import measure, report


@ray.remote
class Echo:
    def echo(self, value):
        return value


@ray.remote
class Caller:
    def run(self, server):
        return measure(lambda value: ray.get(server.echo.remote(value)))


if __name__ == "__main__":
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    report(ray.get(Caller.remote().run.remote(Echo.remote())))
    ray.shutdown()
