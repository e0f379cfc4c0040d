"""What is kept of parsing C headers is what parsing them now gives."""

from pathlib import Path

import pytest

import radiance_abi.native.parsed_header as contract
import radiance_core.execute.parsed_header as executor
import radiance_core.model_files.parsed_header as gguf
from radiance_abi import AbiError, native
from radiance_abi.__main__ import main
from radiance_abi.native.parsing import module_text, write_parsed
from radiance_core.execute.tables import ffi

HEADERS = {executor: "executor.h", gguf: "gguf_native.h"}


def test_what_is_kept_is_what_parsing_gives() -> None:
    """Each module is, byte for byte, what cffi makes of the header beside it."""
    assert Path(contract.__file__).read_text() == module_text(), "python -m radiance_abi parse"
    for module, name in HEADERS.items():
        header = Path(str(module.__file__)).with_name(name)
        assert Path(str(module.__file__)).read_text() == module_text(header), (
            f"python -m radiance_abi parse {header}"
        )


def test_a_struct_of_one_is_that_of_the_other() -> None:
    """A tensor made with the contract's instance fits a field of the executor's structs."""
    tensor = native.ffi().new("DLTensor[1]")
    node = ffi().new("RadStepNode *")
    node.call.tensors = tensor
    assert ffi().sizeof("DLTensor") == native.ffi().sizeof("DLTensor") == 48


def test_another_header_is_refused() -> None:
    """A module that was made of other declarations is not used; how to renew it is told."""
    with pytest.raises(AbiError, match=r"as it is now, got what it made of another; .* do this"):
        native.parsed("typedef int rad_other;", contract, "do this")


def test_a_header_is_parsed_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command writes the module beside the header and says where, and nothing else."""
    header = tmp_path / "mine.h"
    header.write_text("typedef struct Mine { int32_t a; DLTensor *t; } Mine;\n")
    assert main(["parse", str(header)]) == 0
    written = tmp_path / "parsed_header.py"
    assert capsys.readouterr().out == f"{written}\n"
    assert written.read_text() == module_text(header)
    assert b"Mine" in written.read_bytes()
    before = written.read_text()
    header.write_text("typedef struct Mine { int64_t a; DLTensor *t; } Mine;\n")
    assert write_parsed(header) == written
    assert written.read_text() != before
