"""Wrong searches."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "a trial without room leaves its slots to a more urgent one",
        "master.py",
        "trial.is_leaving = room < 0",
        "trial.is_leaving = False",
    ),
    Mutation(
        "ASHA lets the best third of a rung go on",
        "algorithm.py",
        "< max(len(metrics) // self.eta, 1)",
        "< max(len(metrics) // 2, 1)",
    ),
    Mutation(
        "each bracket of adaptive ASHA competes for itself",
        "algorithm.py",
        " if n == rungs[trial]]",
        " if n]",
    ),
    Mutation(
        "a trial goes on from its checkpoint",
        "slot.py",
        "pickle.loads(self._trial.checkpoint) if self._trial.checkpoint else first",
        "first",
    ),
    Mutation(
        "a report that comes again, because the master died before it answered, counts once",
        "master.py",
        "if step > len(trial.metrics):",
        "if step > 0:",
    ),
    Mutation(
        "a trial gets all the slots that it asks for",
        "master.py",
        "for slot in list(free)[:n_slots]}",
        "for slot in list(free)[: n_slots // 2 + 1]}",
    ),
)
