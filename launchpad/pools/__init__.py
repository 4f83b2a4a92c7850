"""A pool: a `concurrent.futures.Executor` over a group of workers.

submit, map ──▶ Schedule: waiting calls ──▶ a frame of calls ──▶ PoolWorker: its slots run them
                                    ◀── their outcomes ◀──
"""
