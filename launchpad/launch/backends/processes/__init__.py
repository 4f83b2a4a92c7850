"""Local processes: launcher (`backend`) → forkserver → workers (`worker_process`)."""
