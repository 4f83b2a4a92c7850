"""Arrays of numpy, scipy, torch and jax: out of band, private, writable where the library allows it."""

from __future__ import annotations

import numpy as np
import pytest

import launchpad as lp
from launchpad.courier.codec import pickling, tensors
from launchpad.state.saved_states import SavedStates
from tests.courier.conftest import begin_source

BIG = 100_000  # elements


def travel(value):
    """There: the value as it arrives, and how many bytes went in band and out of band."""
    body, views = pickling.encode(value)
    buffers = [bytearray(view) for view in views]
    return pickling._loads(body, buffers=buffers), len(body), sum(map(len, buffers))


def program_with(argument):
    program = lp.Program("tensors")
    program.add_node(lp.PyNode(print, argument), label="node")
    return program


def test_an_array_arrives_writable_and_out_of_band() -> None:
    array = np.arange(BIG, dtype=np.float32)

    arrived, in_band, out_of_band = travel({"a": array, "view": array[::2]})

    assert np.array_equal(arrived["a"], array)
    assert np.array_equal(arrived["view"], array[::2])
    assert arrived["a"].flags.writeable
    assert in_band < 1000 + BIG * 2  # a strided view is copied into the stream
    assert out_of_band >= array.nbytes


def test_scipy_sparse_matrices_travel_out_of_band() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.random(1000, 1000, density=0.1, format="csr", random_state=1)

    arrived, in_band, out_of_band = travel(matrix)

    assert (arrived != matrix).nnz == 0
    assert in_band < 5000  # where rows begin is less than 4 KiB, and goes along
    assert out_of_band > 100_000
    arrived.data[:] = 0


def test_tensors_arrive_out_of_band_with_dtype_shape_and_gradients() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        tensor = torch.ones(3, BIG, dtype=dtype)

        arrived, in_band, out_of_band = travel([tensor])

        assert arrived[0].dtype == dtype
        assert torch.equal(arrived[0], tensor)
        assert in_band < 1000
        assert out_of_band == tensor.nbytes
        arrived[0][0, 0] = 0
    assert travel(torch.ones(BIG, requires_grad=True))[0].requires_grad


def test_tensors_of_every_shape_arrive_the_same() -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(24.0).reshape(4, 6)
    for tensor in (
        torch.tensor(3.0),
        torch.empty(0, 5),
        base.T,
        base[1:3, ::2],
        base.expand(2, 4, 6),
    ):
        arrived = travel(tensor)[0]

        assert arrived.shape == tensor.shape
        assert torch.equal(arrived, tensor)


def test_a_module_with_parameters_arrives_and_can_be_trained() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(300, 300)

    arrived, in_band, _ = travel(model)
    arrived(torch.ones(1, 300)).sum().backward()

    assert torch.equal(arrived.weight, model.weight)
    assert isinstance(arrived.weight, torch.nn.Parameter)
    assert arrived.weight.grad is not None
    assert in_band < 10_000


def test_a_tensor_of_a_gpu_says_what_its_receiver_lacks() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this host has a GPU: tests/gpu sends tensors to it")

    with pytest.raises(
        RuntimeError, match=r"cuda:1 has arrived, .* sees 0 GPUs. Send tensor.cpu\(\)"
    ):
        tensors.rebuild_on_gpu(torch.ones(3), "cuda:1", requires_grad=False)


def test_what_is_no_plain_tensor_travels_as_torch_sends_it() -> None:
    torch = pytest.importorskip("torch")
    sparse = torch.eye(4).to_sparse()

    assert torch.equal(travel(sparse)[0].to_dense(), torch.eye(4))
    assert torch.equal(
        travel(torch.ones(2, dtype=torch.complex64).conj())[0].resolve_conj(),
        torch.ones(2, dtype=torch.complex64),
    )


@pytest.mark.parametrize(
    "kind", ["tensor", "subclass", "complex", "by value", "argument of a node"]
)
def test_sound_16_a_tensor_whose_gradient_would_be_cut_is_refused(kind) -> None:
    torch = pytest.importorskip("torch")

    class Named(torch.Tensor):
        pass

    tensor = torch.ones(3, requires_grad=True) * 2
    if kind == "subclass":
        tensor = tensor.as_subclass(Named)
    elif kind == "complex":
        tensor = torch.ones(2, dtype=torch.complex64, requires_grad=True).conj()
    value = [lambda: tensor] if kind == "by value" else [tensor]

    send = travel if kind != "argument of a node" else lambda value: lp.plan(program_with(value))

    with pytest.raises(Exception, match=r"gradient.*detach\(\)"):
        send(value)

    assert not travel(tensor.detach())[0].requires_grad


@pytest.mark.parametrize("kind", ["tensor", "parameter", "conjugated", "with an attribute"])
def test_of_a_view_only_its_own_elements_are_sent_and_saved(kind, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.rand(100, BIG, dtype=torch.complex64 if kind == "conjugated" else torch.float32)
    view = base[3]
    if kind == "parameter":
        view = torch.nn.Parameter(view)
    elif kind == "conjugated":
        view = view.conj()
    elif kind == "with an attribute":
        view.label = "third"

    sent, *sizes = travel(view)
    in_closure = travel(lambda: view)
    states = SavedStates("w-0", str(tmp_path))
    states.save(view, None, 1)
    _, saved = states.load() or (0, None)
    (file,) = tmp_path.iterdir()
    plan = lp.plan(program_with(view))

    most = view.nbytes + 10_000
    assert sum(sizes) < most
    assert sum(in_closure[1:]) < most
    assert file.stat().st_size < most
    assert plan.workers[0].payload.nbytes < most
    for arrived in (sent, saved, in_closure[0]()):
        assert torch.equal(arrived, view.detach())
        assert type(arrived) is type(view)
        assert arrived.requires_grad == view.requires_grad
        assert vars(arrived) == vars(view)


def test_jax_arrays_arrive_out_of_band() -> None:
    jax = pytest.importorskip("jax")
    for dtype in ("float32", "bfloat16", "int32"):
        array = jax.numpy.ones((10, BIG), dtype)

        arrived, in_band, out_of_band = travel({"w": array})

        assert isinstance(arrived["w"], jax.Array)
        assert arrived["w"].dtype == array.dtype
        assert (arrived["w"] == array).all()
        assert in_band < 2000
        assert out_of_band == array.nbytes
    key = jax.random.key(3)
    assert (jax.random.key_data(travel(key)[0]) == jax.random.key_data(key)).all()


def test_neither_torch_nor_jax_is_imported_by_sending_arrays(python) -> None:
    source = """
import numpy
from launchpad.courier.codec import pickling, tensors
pickling.encode({"a": numpy.ones(10_000)})
print("torch" in sys.modules, "jax" in sys.modules)
"""
    with python(begin_source() + source) as process:
        assert process.stdout.read() == "False False\n"
