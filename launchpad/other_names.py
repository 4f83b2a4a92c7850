"""The names that users of other systems type, and what to write here.

Each table is for one class, function or module. `courier/explained.py` puts its texts into errors.
"""

from __future__ import annotations

_LAUNCH = "lp.launch(program), or lp.run(program), which waits for the end"
_RUN = "lp.run(program), or lp.launch(program), which returns at once"
_STOP = "running.stop(), where running = lp.launch(program), or lp.stop() in a worker"
_SERVED = "program.add_node(lp.CourierNode(YourClass, …), label=…)"
_FUNCTION = "program.add_node(lp.PyNode(function, …), label=…)"
_ME = "lp.current().{0}, in a worker"
_REPLICA_INDEX = "lp.current().replica_index, in a worker, or group.rank of an lp.Collective"
_NUM_REPLICAS = "lp.current().num_replicas, in a worker, or group.size of an lp.Collective"
_COLLECTIVE = "lp.CollectiveNode, or lp.ranks: each rank gets a group with {0}()"
_POOL = "lp.pool(clients), which has submit() and map(), or an lp.PoolNode"
_RESTART_POLICY = "lp.RestartPolicy, as in program.group(label, restart=lp.RestartPolicy())"
_RESOURCES = "lp.Resources, as in program.group(label, resources=lp.Resources(gpus=1))"
_QUEUE = "lp.QueueNode, whose handle becomes an lp.Queue"
_REPLAY = "lp.ReplayNode([lp.replay.Table(…)])"
_STOP_EVENT = "lp.stop_event().is_set(), or lp.wait_for_stop(seconds)"
_FUTURES = "client.futures.step(batch), or lp.submit(client.step, batch): both return a Future"
_PLACE_OF_RESOURCES = "with program.group(label, resources=lp.Resources(…)), around add_node"
_PLACE_OF_POLICY = "with program.group(label, restart=lp.RestartPolicy(…)), around add_node"
_REPLICAS = "add_node(node, label=…, replicas=n): a node's group has one replica for each node"

MODULE = {
    "init": f"nothing before {_LAUNCH}",
    "shutdown": _STOP,
    "kill": _STOP,
    "exit": _STOP,
    "abort": _STOP,
    "start": _LAUNCH,
    "submit_program": _LAUNCH,
    "execute": _RUN,
    "remote": _SERVED,
    "actor": _SERVED,
    "service": _SERVED,
    "Actor": _SERVED,
    "Server": _SERVED,
    "Worker": _SERVED,
    "ServerNode": _SERVED,
    "ActorNode": _SERVED,
    "RpcNode": _SERVED,
    "Courier": _SERVED,
    "task": _FUNCTION,
    "Task": _FUNCTION,
    "PythonNode": _FUNCTION,
    "FunctionNode": _FUNCTION,
    "ClassNode": "lp.PyClassNode for a class with run(), lp.CourierNode for one whose methods others call",
    "get": "future.result(), of a future = client.futures.step(batch)",
    "wait": "running.wait(), or concurrent.futures.wait(futures)",
    "put": "an argument of the call, or lp.QueueNode for a queue",
    "future": _FUTURES,
    "futures": _FUTURES,
    "Client": "lp.CourierClient for types; a handle among a node's arguments becomes a client in the worker",
    "Group": "with program.group(label):",
    "rank": _REPLICA_INDEX,
    "get_rank": _REPLICA_INDEX,
    "world_size": _NUM_REPLICAS,
    "get_world_size": _NUM_REPLICAS,
    **{
        name: _ME.format(name)
        for name in (
            "replica_index",
            "num_replicas",
            "name",
            "attempt",
            "seed",
            "gpus",
            "group_dir",
            "state_dir",
        )
    },
    "save": _ME.format("save(state)"),
    "checkpoint": _ME.format("save(state)"),
    "load": _ME.format("load(default=…)"),
    "all_reduce": _COLLECTIVE.format("all_reduce"),
    "allreduce": _COLLECTIVE.format("all_reduce"),
    "all_gather": _COLLECTIVE.format("all_gather"),
    "DataParallel": _COLLECTIVE.format("init_torch"),
    "RankNode": _COLLECTIVE.format("all_reduce"),
    "torchrun": "lp.ranks(function, n), or launchpad run --ranks N script.py",
    "Ranks": "lp.ranks(function, n)",
    "spawn": "lp.ranks(function, n)",
    "Barrier": "lp.barrier(…), or group.barrier() of an lp.Collective",
    "map": _POOL,
    "ActorPool": _POOL,
    "Executor": _POOL,
    "PoolExecutor": _POOL,
    "ProcessPool": _POOL,
    "queue": _QUEUE,
    "JoinableQueue": _QUEUE,
    "Channel": _QUEUE,
    "Replay": _REPLAY,
    "ReplayBuffer": _REPLAY,
    "should_stop": _STOP_EVENT,
    "is_stopping": _STOP_EVENT,
    "stopped": f"{_STOP_EVENT}; lp.Stopped is the exception",
    "sleep": "lp.wait_for_stop(seconds), which ends when the program stops",
    "on_stop": "lp.register_stop_handler(function)",
    "atexit": "lp.on_exit(function)",
    "Restart": _RESTART_POLICY,
    "Retry": _RESTART_POLICY,
    "RetryPolicy": _RESTART_POLICY,
    "Resource": _RESOURCES,
    "Requirements": _RESOURCES,
    "GPU": _RESOURCES,
    "Placement": "lp.Resources(placement=…)",
    "PlacementGroup": "lp.Resources(placement=…)",
    "metrics": "running.metrics(), where running = lp.launch(program)",
    "status": "running.status(), where running = lp.launch(program)",
    "logs": "running.logs(label), where running = lp.launch(program)",
    "context": "lp.current(), in a worker",
    "get_runtime_context": "lp.current(), in a worker",
    "current_context": "lp.current(), in a worker",
    "local": 'lp.launch(program, "local_mp") or "local_mt"',
    "Error": "lp.LaunchpadError, and lp.courier.errors.CourierError for calls",
    "ProgramError": "lp.ProgramFailed",
    "TimeoutError": "TimeoutError, and lp.courier.errors.DeadlineExceeded for calls",
    "RemoteError": "lp.courier.errors.RemoteError",
}

LAUNCH_TYPE = {
    "LOCAL_MP": "LaunchType.LOCAL_MULTI_PROCESSING",
    "LOCAL_MT": "LaunchType.LOCAL_MULTI_THREADING",
    "PROCESSES": "LaunchType.LOCAL_MULTI_PROCESSING",
    "THREADS": "LaunchType.LOCAL_MULTI_THREADING",
    "K8S": "LaunchType.KUBERNETES",
}

LAUNCH_TYPE_NAMES = {
    "mp": "'local_mp'",
    "processes": "'local_mp'",
    "process": "'local_mp'",
    "multiprocessing": "'local_mp'",
    "mt": "'local_mt'",
    "threads": "'local_mt'",
    "thread": "'local_mt'",
    "local": "'local_mp' (processes) or 'local_mt' (threads)",
    "k8s": "'kubernetes'",
    "kube": "'kubernetes'",
}

REPLAY = {
    "FIFO": "lp.replay.Fifo",
    "LIFO": "lp.replay.Lifo",
    "Random": "lp.replay.Uniform",
    "PER": "lp.replay.Prioritized",
    "Buffer": "lp.replay.Table",
    "ReplayBuffer": "lp.replay.Table",
    "Client": "lp.replay.ReplayClient",
    "MinSizeLimiter": "lp.replay.MinSize",
}

PROGRAM = {
    "launch": _LAUNCH,
    "start": _LAUNCH,
    "run": _RUN,
    "execute": _RUN,
    "stop": _STOP,
    "plan": "lp.plan(program)",
    "workers": "lp.plan(program).workers, or program.groups",
    "nodes": "program.get_all_nodes(), or program.groups",
    "labels": "program.groups, a dict with the labels",
    "handles": "what add_node returns",
    "draw": "program.to_svg(), to_dot() or to_mermaid()",
    "show": "program.to_svg(), to_dot() or to_mermaid(); a notebook draws the program itself",
    "plot": "program.to_svg(), to_dot() or to_mermaid()",
    "visualize": "program.to_svg(), to_dot() or to_mermaid()",
    "to_dict": "program.graph().to_dict()",
    "to_json": "json.dumps(program.graph().to_dict())",
    "add": "program.add_node(node, label=…)",
    "node": "program.add_node(node, label=…)",
    "add_nodes": "program.add_node(node, label=…, replicas=n)",
    "add_edge": "the handle of one node as an argument of another: that is the edge",
    "connect": "the handle of one node as an argument of another: that is the edge",
    "add_group": "with program.group(label):",
    "add_actor": _SERVED,
    "add_worker": _SERVED,
    "add_task": _FUNCTION,
}

ADD_NODE = {
    "name": "label=",
    "group": "label=",
    "num_replicas": "replicas=",
    "count": "replicas=",
    "n": "replicas=",
    **dict.fromkeys(
        ("resources", "gpus", "num_gpus", "cpus", "num_cpus", "memory"), _PLACE_OF_RESOURCES
    ),
    **dict.fromkeys(("restart", "max_restarts", "max_retries", "retries"), _PLACE_OF_POLICY),
}

GROUP = {
    "name": "label=",
    **dict.fromkeys(("replicas", "num_replicas", "count", "n"), _REPLICAS),
    **{
        name: f"resources=lp.Resources({instead}=…)"
        for name, instead in (
            ("gpus", "gpus"),
            ("gpu", "gpus"),
            ("num_gpus", "gpus"),
            ("cpus", "cpus"),
            ("cpu", "cpus"),
            ("num_cpus", "cpus"),
            ("memory", "memory"),
            ("env", "env"),
            ("labels", "labels"),
            ("placement", "placement"),
        )
    },
    "resource": "resources=lp.Resources(…)",
    **dict.fromkeys(
        ("max_restarts", "max_retries", "retries"), "restart=lp.RestartPolicy(max_restarts=…)"
    ),
    "restart_policy": "restart=lp.RestartPolicy(…)",
    "imports": "preload=",
    "is_main": "main=",
}

RESOURCES = {
    "num_gpus": "gpus=",
    "num_cpus": "cpus=",
    "ram": "memory=",
    "memory_gb": "memory=, such as memory='4GiB'",
    "gpu_type": "accelerator=",
    "accelerator_type": "accelerator=",
    "env_vars": "env=",
    "interpreter": "python=",
    "node_labels": "labels=",
    "strategy": "placement=",
    "replicas": _REPLICAS,
}

RESTART_POLICY = {
    "max_retries": "max_restarts=",
    "retries": "max_restarts=",
    "policy": "mode=",
    "delay_s": "backoff=, in seconds",
    "backoff_s": "backoff=, in seconds",
    "timeout_s": "start_timeout_s= or heartbeat_s=",
    "window_s": "within_s=",
    "period_s": "within_s=",
    "heartbeat": "heartbeat_s=",
    "grace_s": "stop_grace_s=",
}

LAUNCH = {
    "backend": "launch_type=",
    "timeout": "lp.run(program, timeout_s=…), or running.wait(timeout_s=…)",
    "timeout_s": "lp.run(program, timeout_s=…), or running.wait(timeout_s=…)",
    "block": "lp.run(program), or running.wait(), where running = lp.launch(program)",
    "wait": "lp.run(program), or running.wait(), where running = lp.launch(program)",
    "log_dir": "running.log_directory; LAUNCHPAD_LOGGING_DIR says where logs are kept",
    "env": "program.group(label, resources=lp.Resources(env=…))",
    "gpus": "program.group(label, resources=lp.Resources(gpus=…))",
    "dashboard": "view='browser' or view='terminal'",
    "checkpoint_dir": "state=",
    "debug": "pdb=True",
    "background": "detach=True, on a cluster; lp.launch itself returns at once",
    "nodes": "nodes= with launch_type='slurm', or hosts= with 'ssh'",
}

RUNNING = {
    "join": "running.wait()",
    **dict.fromkeys(
        ("kill", "shutdown", "terminate", "cancel", "close"),
        "running.stop(), or `with lp.launch(…) as running:`",
    ),
    **dict.fromkeys(
        ("done", "is_running", "is_alive", "running", "poll"), "running.is_done, a property"
    ),
    "workers": "running.status()",
    "state": "running.status()",
    "result": "running.results(label)",
    "get": "running.results(label), or running.client(label)",
    "exception": "running.failure()",
    "error": "running.failure()",
    "returncode": "running.exit_status()",
    "exit_code": "running.exit_status()",
    "address": "running.client(label)",
    "get_client": "running.client(label)",
    "handles": "running.client(handle), or running.client(label)",
    "restart_worker": "running.restart(worker)",
    "scale": "add_node(…, replicas=n), before the launch: a group's size doesn't change",
    "dashboard": "lp.launch(program, view='browser'), or `launchpad view`",
    "url": "lp.launch(program, view='browser'), or `launchpad view`",
    "profile": "running.trace()",
}

TIMEOUT = {"timeout": "timeout_s="}

CONTEXT = {
    "rank": "replica_index",
    "index": "replica_index",
    "world_size": "num_replicas",
    "size": "num_replicas",
    "replicas": "num_replicas",
    "group": "label, or group_dir",
    "restarts": "attempt, which begins at 1",
    "generation": "attempt, which begins at 1; the ranks of an lp.Collective have group.generation",
    "device": "gpus",
    "checkpoint": "save(state)",
    "restore": "load(default=…)",
    "stop_event": "lp.stop_event()",
    "should_stop": "lp.stop_event().is_set(), or lp.wait_for_stop(seconds)",
    "log": "print or logging: a worker's output is shown and kept",
}
