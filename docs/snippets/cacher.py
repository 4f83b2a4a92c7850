"""Many questions, one server, and a cacher between them."""

import launchpad as lp


class Weather:
    def __init__(self):
        self.asked = 0

    def temperature(self, town: str) -> int:
        self.asked += 1
        return {"Oslo": -3, "Rome": 14}[town]

    def times_asked(self) -> int:
        return self.asked


def read(cached, weather):
    answers = {cached.temperature("Oslo") for _ in range(1000)}
    print(answers, "and the server was asked fewer than 100 times:", weather.times_asked() < 100)


# part: program
program = lp.Program("weather")
weather = program.add_node(lp.CourierNode(Weather), label="weather")
cached = program.add_node(
    lp.CacherNode(weather, refresh_interval_ms=100, stale_after_ms=5000), label="cacher"
)
program.add_node(lp.PyNode(read, cached, weather), label="reader")
lp.launch(program)
# end
