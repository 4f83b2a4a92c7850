"""Jobs on a real Slurm."""

from __future__ import annotations

from tests.hosts.network import Network
from tests.hosts.slurm import N_GPUS, Slurm
from tests.waiting import until


def test_a_job_of_the_user_runs_on_all_nodes(slurm_network: Network, slurm: Slurm) -> None:
    h1 = slurm_network.hosts[0]

    done = slurm.run(h1, ["srun", "-N3", "-n3", "sh", "-c", "hostname; whoami"])

    assert sorted(done.stdout.split()) == ["alice"] * 3 + ["h1", "h2", "h3"]


def test_a_gpu_is_assigned_to_one_job_only(slurm_network: Network, slurm: Slurm) -> None:
    h1 = slurm_network.hosts[0]
    batch = ["sbatch", "--parsable", "--nodelist=h2", "--gres=gpu:1", "--output=gpu-%j"]
    script = "--wrap=echo $CUDA_VISIBLE_DEVICES; sleep 1000"

    jobs = [slurm.run(h1, [*batch, script]).stdout.strip() for _ in range(N_GPUS + 1)]
    files = [slurm.home / f"gpu-{job}" for job in jobs[:N_GPUS]]
    until(lambda: all(file.exists() and file.read_text() for file in files))
    waiting = slurm.run(h1, ["squeue", "-h", "--state=PENDING", "-o", "%A"]).stdout.split()

    assert sorted(file.read_text().strip() for file in files) == ["0", "1"]
    assert waiting == jobs[N_GPUS:]


def test_a_node_that_was_booted_takes_jobs_again(slurm_network: Network, slurm: Slurm) -> None:
    h1, h2, _ = slurm_network.hosts
    h2.lose_power()
    slurm_network.boot(h2)

    slurm.restore()

    done = slurm.run(h1, ["srun", "--nodelist=h2", "hostname"])
    assert done.stdout == "h2\n"
