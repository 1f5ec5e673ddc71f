"""Registries and plug-ins: found by place, refused with the package's name."""

from __future__ import annotations

import abc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from uni_train.core import registry
from uni_train.core.registry import PluginError, Registry, UnknownNameError, load_plugins

ROOT = Path(__file__).parents[2]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of other people's modules; what a test names in the environment is forgotten after it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(registry.ENVIRONMENT, "")
    monkeypatch.setattr(registry, "_named", set())
    return tmp_path


@pytest.fixture
def shapes(elsewhere: Path) -> Registry[object]:
    """A registry with two shapes of its own, each in a file of its name."""
    for name in ("circle", "square"):
        (elsewhere / "house" / name).mkdir(parents=True)
        (elsewhere / "house" / name / "__init__.py").touch()
        (elsewhere / "house" / name / "shape.py").write_text(
            f"import shapes\n@shapes.SHAPES.register({name!r})\nclass Shape:\n    area = 1\n"
        )
    (elsewhere / "house" / "notes.py").touch()  # is no folder with a shape.py
    (elsewhere / "house" / "__init__.py").touch()
    (elsewhere / "shapes.py").write_text(
        "from uni_train.core.registry import Registry\n"
        "SHAPES = Registry('shape', 'house.*.shape', required=('area',))\n"
    )
    for name in [name for name in sys.modules if name == "shapes" or name.startswith("house")]:
        del sys.modules[name]
    import shapes  # type: ignore[import-not-found]

    return shapes.SHAPES


def plug_in(folder: Path, name: str, text: str) -> None:
    sys.modules.pop(name, None)
    (folder / f"{name}.py").write_text(text)


def test_what_is_built_in_is_known_by_its_place_and_imported_when_it_is_asked_for(shapes):
    assert shapes.names() == ("circle", "square")
    assert "house.circle.shape" not in sys.modules
    assert shapes.get("circle").area == 1
    assert "house.circle.shape" in sys.modules and "house.square.shape" not in sys.modules
    with pytest.raises(UnknownNameError, match='there is no shape "squar": did you mean "square"'):
        shapes.get("squar")


def test_a_plug_in_adds_a_name_once(shapes, elsewhere):
    plug_in(elsewhere, "others", "import shapes\n@shapes.SHAPES.register('star')\nclass Star:\n    area = 5\n")
    load_plugins(["others"])
    load_plugins(["others"])
    assert shapes.names() == ("circle", "square", "star")
    assert shapes.get("star").area == 5 and shapes.package_of("star") == "others"
    assert os.environ[registry.ENVIRONMENT] == "others"  # so that worker processes have it too


@pytest.mark.parametrize(("name", "owner"), [("circle", "house"), ("star", "first")])
def test_a_taken_name_is_refused_with_who_took_it(shapes, elsewhere, name, owner):
    star = "import shapes\n@shapes.SHAPES.register({!r})\nclass {}:\n    area = 5\n"
    plug_in(elsewhere, "first", star.format("star", "Star"))
    plug_in(elsewhere, "second", star.format(name, "Other"))
    load_plugins(["first"])
    with pytest.raises(PluginError, match=f'second .* registers the shape "{name}", a name that {owner} has taken'):
        load_plugins(["second"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import shapes\n@shapes.SHAPES.register('flat')\nclass Flat:\n    pass\n", 'bad .*shape "flat" has no area'),
        ("import no_such_module\n", r"plug-in bad .*named in the recipe.* 'no_such_module' .*bad.py, line 1"),
        ("x = 1\ny = x / 0\n", r"plug-in bad .*ZeroDivisionError.*bad\.py, line 2"),
        ("def f(:\n", r"plug-in bad .*SyntaxError.*bad\.py, line 1"),
    ],
)  # fmt: skip
def test_a_plug_in_that_cannot_be_used_is_named_with_what_is_wrong(shapes, elsewhere, text, said):
    plug_in(elsewhere, "bad", text)
    with pytest.raises(PluginError, match=said):
        load_plugins(["bad"])
    with pytest.raises(PluginError, match=r"there is no plug-in my_pakage .*install it"):
        load_plugins(["my_pakage"])


def test_an_abstract_method_is_one_that_is_missing(elsewhere):
    class Flat(abc.ABC):
        @abc.abstractmethod
        def area(self) -> float: ...

    with pytest.raises(PluginError, match="has no area"):
        Registry[type[Flat]]("shape", {}, required=("area",)).register("flat")(Flat)


def test_an_installed_plug_in_that_is_broken_is_named(tmp_path):
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('half of it is missing')\n")
    info = tmp_path / "broken_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nanything = broken_plugin\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    script = "from uni_train.core.registry import Registry; Registry('shape', {}).names()"
    broken = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert broken.returncode == 1 and "half of it is missing" in broken.stderr
    assert "plug-in broken_plugin (broken-plugin, an installed package)" in broken.stderr
