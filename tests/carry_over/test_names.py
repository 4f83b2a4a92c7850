"""The names that public programs for dm-launchpad use, and how they call them."""

from __future__ import annotations

import ast
import importlib
import inspect

import pytest

import launchpad as lp

NAMES = """
Address AbstractAddressBuilder CacherNode CourierClient CourierHandle CourierNode Deferred
Dereferenceable Handle LAUNCH_TYPE LaunchContext LaunchType MultiProcessingColocation
MultiThreadingColocation Node Program PyClassNode PyNode PythonProcess ReverbNode
SimpleLocalAddressBuilder batched_handler flags get_context get_port_from_address is_local_launch
is_local_launch_or_test launch make_program make_program_stopper maybe_dereference
register_stop_handler stop stop_event unregister_stop_handler wait_for_stop
""".split()

CALLS = """
lp.Program('acme')
lp.Program.add_node(program, node, 'learner')
lp.Program.group(program, label='actor')
lp.Program.get_all_nodes(program)
lp.PyNode(train, learner, num_steps=3)
lp.PyClassNode(Learner, 0, learner=learner)
lp.PyClassNode.disable_run(node)
lp.PyClassNode.enable_run(node)
lp.PyClassNode._construct_instance(node)
lp.CourierNode(Learner, courier_kwargs={'thread_pool_size': 8}, courier_client_kwargs={}, lr=0.1)
lp.CourierNode.configure(node, 1, actor=actor)
lp.CourierNode.create_handle(node)
lp.CourierNode.disable_run(node)
lp.CourierHandle.dereference(handle)
lp.CourierHandle.set_client_kwargs(handle, call_timeout=3)
lp.CacherNode(learner, refresh_interval_ms=1000, stale_after_ms=4000)
lp.ReverbNode(make_tables, checkpoint_ctor=make, checkpoint_time_delta_minutes=10)
lp.ReverbNode(priority_tables_fn=make_tables)
lp.MultiThreadingColocation([node, node], return_on_first_completed=True)
lp.MultiProcessingColocation([node, node], num_retries_on_failure=2)
lp.launch(program, 'local_mp', None, local_resources, self)
lp.launch(programs=program, launch_type='local_mp', xm_resources=None, local_resources={})
lp.launch(program, terminal='current_terminal')
lp.launch(program, launch_type='test_mt', test_case=self, serialize_py_nodes=True)
lp.Running.wait(running, ['learner'], raise_error=False, return_on_first_completed=True)
lp.Running.wait(running)
lp.Running.stop_and_wait(running)
lp.Running.thread_worker(running, 'name', function)
lp.is_local_launch('local_mp')
lp.is_local_launch_or_test(lp.LaunchType.TEST_MULTI_THREADING)
lp.make_program(node, node, name='p')
lp.make_program_stopper(launch_type)
lp.register_stop_handler(f)
lp.unregister_stop_handler(f)
lp.stop()
lp.stop_event()
lp.wait_for_stop(10.0)
lp.batched_handler(batch_size=3, timeout=1.0, pad_batch=True, max_parallelism=2)
lp.PythonProcess(args={'seed': 3}, env={'CUDA_VISIBLE_DEVICES': '0'})
lp.Deferred(f, 1, x=2)
lp.get_context()
courier.Client('localhost:1234')
courier.Client('localhost:1234', False, 5.0)
courier.Client('localhost:1234', compress=True, call_timeout=5.0, wait_for_ready=False)
courier.Server('name', 1234, thread_pool_size=4)
courier.Server('name', port=1234)
courier.Server.Bind(server, 'f', f)
courier.Server.Bind(server, 'f', f, is_priority=True)
courier.Server.Unbind(server, 'f')
courier.Server.Start(server)
courier.Server.Stop(server)
courier.Server.Join(server)
courier.Server.SetIsHealthy(server, True)
courier.list_methods(client)
""".strip().splitlines()


def test_the_names_that_programs_use_are_there() -> None:
    assert [name for name in NAMES if name not in lp.__all__] == []


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_programs_make_is_taken(call: str) -> None:
    parsed = ast.parse(call, mode="eval").body
    assert isinstance(parsed, ast.Call)
    there = {"lp": lp, "courier": importlib.import_module("courier")}
    function = eval(ast.unparse(parsed.func), there)

    signature = inspect.signature(function)
    signature.bind(*parsed.args, **{k.arg: k.value for k in parsed.keywords if k.arg})


def test_the_launch_types_that_programs_name_are_there() -> None:
    names = ["LOCAL_MULTI_THREADING", "LOCAL_MULTI_PROCESSING"]
    names += ["TEST_MULTI_THREADING", "TEST_MULTI_PROCESSING"]

    assert [lp.LaunchType[name].value for name in names] == [
        "local_mt",
        "local_mp",
        "test_mt",
        "test_mp",
    ]
