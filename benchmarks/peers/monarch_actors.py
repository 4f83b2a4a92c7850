"""An actor of Monarch in a process of this host, called by the script."""

from measure import measure, report
from monarch.actor import Actor, endpoint, this_host


class Echo(Actor):
    @endpoint
    def echo(self, value):
        return value


if __name__ == "__main__":
    server = this_host().spawn_procs({"servers": 1}).spawn("echo", Echo)
    report(measure(lambda value: server.echo.call_one(value).get()))
