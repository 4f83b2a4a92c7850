"""The way from a program to running workers: plan, backends, supervision.

These are the steps of `launch` until a worker runs, with local processes:

    launch.launch              the launch type becomes a backend (registry.py)
    planner.plan               nodes become WorkerPlans, their executables payloads
    Running.start              the run's directory and token; endpoints get their final form
    Backend.create_workers     each plan becomes a WorkerSpec; the forkserver gets the specs
    Runner, Supervisor         decide what to do: StartWorker, StopWorker, …
    ForkServer.execute_in_order, InChild, become_worker        fork the worker's process, and set it up
    Worker.main                unpickles, opens and runs the executable; the same on every backend

docs/life_of_a_program.md describes all files, and how a program ends.
"""
