"""One contender in a process of its own: takes orders as lines of JSON, answers with seconds.

    python worker.py {radiance,llama.cpp,openvino-genai} FILE '{"threads": 2, ...}'

Runs in the environment of its contender, so nothing but numpy and that contender is imported. The
first answer says what is known of its work; {"prompt": [ids], "tokens": n} feeds a prompt and takes
n greedy tokens after it; {"prompts": [[ids], ...], "tokens": n} does so with several at once.
"""

import ctypes
import json
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


class Stepped(ABC):
    """A contender that is driven step by step; ``clock`` says seconds of the wall or processors."""

    clock = staticmethod(time.perf_counter)

    @abstractmethod
    def reset(self) -> None:
        """Forget the sequence."""

    @abstractmethod
    def feed(self, ids: list[int]) -> int:
        """Compute these tokens and return the greedy next one."""

    def run(self, prompt: list[int], tokens: int) -> Answer:
        """Return seconds of the prompt, to the first token, and of the tokens after that."""
        self.reset()
        start = self.clock()
        token = self.feed(prompt)
        begin = self.clock()
        for _ in range(tokens):
            token = self.feed([token])
        return {"prompt_s": begin - start, "decode_s": self.clock() - begin}

    def facts(self) -> Answer:
        """Return what is known of the work of a step; nothing of peers."""
        return {}


class Radiance(Stepped):
    """The step program without a server."""

    def __init__(self, path: Path, options: Answer) -> None:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        from single_stream import SingleStream

        planes = {"int16": 2, "int8": 1}[options["activations"]]
        self._stream = SingleStream(path, options["threads"], options["context"], planes)

    def reset(self) -> None:
        self._stream.reset()

    def feed(self, ids: list[int]) -> int:
        return self._stream.feed_prompt(ids)

    def facts(self) -> Answer:
        """Return bytes that a step of one token reads, and multiplications of a prompt's token.

        The latter by the numbers that activations are when they meet the weights.
        """
        from radiance_core.graph.ir import GraphWeight

        plan = self._stream.plan
        nodes = [r.node for r in plan.resolution.nodes if r.node.schema.op != "embed_lookup"]
        origins = {
            "|".join((*w.source.names, *w.source.planes)): numbers_of(node)
            for node in nodes
            for w in node.operands
            if isinstance(w, GraphWeight)
        }
        read = {key: site for key, site in plan.sites.items() if key[0] in origins}
        ops = dict.fromkeys(("i8", "bf16", "f32"), 0)
        for key, site in read.items():
            if len(site.weight.shape) == 2 and site.weight.access != "vocabulary":
                ops[origins[key[0]]] += 2 * site.weight.shape[0] * site.weight.shape[1]
        return {
            "weight_bytes": sum(site.nbytes for site in read.values()),
            "cache_bytes_per_token": sum(sum(g.key_value_bytes) for g in plan.budget.groups),
            "ops_per_prompt_token": ops,
        }


def numbers_of(node: Any) -> str:
    """Return what activations of a product are when they meet its weights."""
    if "planes" in node.params:
        return "i8"
    return "bf16" if "_bf16" in node.schema.op else "f32"


class LlamaCpp(Stepped):
    """llama.cpp's library; logits are looked at through its C interface, nothing is sampled."""

    def __init__(self, path: Path, options: Answer) -> None:
        import llama_cpp
        import numpy as np

        self._api, self._numpy = llama_cpp, np
        self._llama = llama_cpp.Llama(
            str(path),
            n_ctx=options["context"],
            n_batch=512,
            n_ubatch=512,
            n_threads=options["threads"],
            n_threads_batch=options["threads"],
            flash_attn=options["flash"],
            verbose=False,
        )

    def reset(self) -> None:
        self._llama.reset()

    def feed(self, ids: list[int]) -> int:
        self._llama.eval(ids)
        logits = self._api.llama_get_logits_ith(self._llama.ctx, -1)
        return int(self._numpy.ctypeslib.as_array(logits, (self._llama.n_vocab(),)).argmax())


class OpenVino:
    """OpenVINO GenAI's pipeline, which reads GGUF files itself; times are its own metrics.

    It tells no processor time, so that this is what a call takes, less what its prompt alone takes.
    """

    clock = staticmethod(time.perf_counter)

    def __init__(self, path: Path, options: Answer) -> None:
        import numpy as np
        import openvino
        import openvino_genai

        self._genai, self._tensor, self._numpy = openvino_genai, openvino.Tensor, np
        threads = options["threads"]
        self._pipeline = openvino_genai.LLMPipeline(str(path), "CPU", INFERENCE_NUM_THREADS=threads)

    def run(self, prompt: list[int], tokens: int) -> Answer:
        """Return seconds to the first token and of those after it."""
        if self.clock is time.process_time:
            return self._processor_time(prompt, tokens)
        metrics = self._generate([prompt], tokens)
        return {
            "prompt_s": metrics.get_ttft().mean / 1e3,
            "decode_s": metrics.get_tpot().mean / 1e3 * tokens if tokens else 0.0,
        }

    def _processor_time(self, prompt: list[int], tokens: int) -> Answer:
        start = self.clock()
        self._generate([prompt], 0)
        begin = self.clock()
        # Other ids in the same places: the pipeline keeps what it computed of a prompt.
        self._generate([[i + 1 for i in prompt]], tokens)
        prompt_s = begin - start
        return {"prompt_s": prompt_s, "decode_s": self.clock() - begin - prompt_s}

    def run_all(self, prompts: list[list[int]], tokens: int) -> Answer:
        """Return seconds of the tokens after the first ones, of all prompts together."""
        metrics = self._generate(prompts, tokens)
        whole = metrics.get_generate_duration().mean - metrics.get_ttft().mean
        return {"prompt_s": metrics.get_ttft().mean / 1e3, "decode_s": whole / 1e3}

    def facts(self) -> Answer:
        return {}

    def _generate(self, prompts: list[list[int]], tokens: int) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = tokens + 1
        config.do_sample = False
        config.ignore_eos = True
        ids = self._numpy.array(prompts, self._numpy.int64)
        mask = self._numpy.ones_like(ids)
        inputs = self._genai.TokenizedInputs(self._tensor(ids), self._tensor(mask))
        return self._pipeline.generate(inputs, config).perf_metrics


CONTENDERS = {"radiance": Radiance, "llama.cpp": LlamaCpp, "openvino-genai": OpenVino}


def end_with_parent() -> None:
    """Let the system end this process when its parent ends: a stopped one would stay for ever."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGKILL))


def main() -> None:
    """Load, say so, and do as told until the input ends."""
    end_with_parent()
    kind, path, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    # Libraries print to the standard output; answers go out where it was, and prints do not.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    contender: Any = CONTENDERS[kind](path, options)
    if options.get("processor_time"):
        contender.clock = time.process_time
    print(json.dumps({"facts": contender.facts()}), file=answers)
    for line in sys.stdin:
        order = json.loads(line)
        if "prompts" in order:
            answer = contender.run_all(order["prompts"], order["tokens"])
        else:
            answer = contender.run(order["prompt"], order["tokens"])
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
