"""Wrong ranks of ZeRO."""

from tests.examples.mutations import Mutation

MUTATIONS = (
    Mutation(
        "Adam's mean is corrected, since it begins with 0",
        "_shared/adam.py",
        "unbiased_mean = mean / (1 - 0.9**step)",
        "unbiased_mean = mean",
    ),
    Mutation(
        "a rank keeps no larger array behind its part of the gradients",
        "algorithm.py",
        "self.gradients[i] = to_half(to_float(self.gradients[i]) + to_float(new))",
        "self.gradients[i] = np.tile(to_half(to_float(self.gradients[i]) + to_float(new)), 4)[: len(new)]",
    ),
    Mutation(
        "at stage 2, the parts of gradients are sent, and not whole gradients",
        "algorithm.py",
        "(new,) = self._scattered([new])",
        "new = part(self._gathered(self._scattered([new]))[0], self.group.rank, self.group.size)",
    ),
    Mutation(
        "at stage 3, a layer that was gathered is dropped",
        "algorithm.py",
        "return self.wide.watch(to_float(whole)[: self.sizes[i]].astype(np.float64))",
        "self.kept = [*getattr(self, 'kept', []), self.wide.watch(1.0 * to_float(whole)[: self.sizes[i]])]"
        "; return self.kept[-1]",
    ),
    Mutation(
        "the gradient is the mean of the ranks' gradients, not their sum",
        "algorithm.py",
        "rows.mean(axis=0, dtype=np.float64)",
        "rows.sum(axis=0, dtype=np.float64)",
    ),
    Mutation(
        "gradients of micro-batches are added up",
        "algorithm.py",
        "to_half(to_float(self.gradients[i]) + to_float(new))",
        "to_half(to_float(new))",
    ),
    Mutation(
        "gradients are forgotten after the update",
        "algorithm.py",
        "gradient[:] = 0",
        "pass",
    ),
    Mutation(
        "Adam updates master copies in float32",
        "algorithm.py",
        "self.parameters = [to_half(state[0]) for state in self.states]",
        "self.parameters = [to_half(state[0]) for state in self.states]"
        "\n        for state in self.states:\n            state[0] = to_float(to_half(state[0]))",
    ),
    Mutation(
        "numbers are rounded to the nearest bfloat16, not to the next smaller one",
        "_shared/bfloat16.py",
        "(bits + 0x7FFF + last_bit)",
        "bits",
    ),
    Mutation(
        "checkpoints have Adam's moments",
        "rank.py",
        "model.states[i] = own.copy()",
        "model.states[i] = own * np.float32([[1], [0], [0]])",
    ),
)
