"""A pool: a `concurrent.futures.Executor` that runs calls on a group of workers.

submit, map ──▶ Schedule: waiting calls ──▶ a frame of calls ──▶ PoolWorker: its slots run them
                                    ◀── their outcomes ◀──
"""
