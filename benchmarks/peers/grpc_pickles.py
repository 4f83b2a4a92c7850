"""gRPC over a unix socket, with generic handlers and pickles."""

import multiprocessing
import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor

import grpc
from measure import measure, report

METHOD = "/echo/echo"
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def dump(value):
    return pickle.dumps(value, protocol=5)


def serve(address, is_up):
    echo = grpc.unary_unary_rpc_method_handler(lambda value, _: value, pickle.loads, dump)
    server = grpc.server(ThreadPoolExecutor(4), options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"echo": echo}),))
    server.add_insecure_port(address)
    server.start()
    is_up.set()
    server.wait_for_termination()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/socket"
        is_up = context.Event()
        server = context.Process(target=serve, args=(address, is_up), daemon=True)
        server.start()
        is_up.wait(60)
        with grpc.insecure_channel(address, options=OPTIONS) as channel:
            report(measure(channel.unary_unary(METHOD, dump, pickle.loads)))
        server.kill()
