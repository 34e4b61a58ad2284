"""The picture of a hierarchy: what it shows, that nothing collides, and what it leaves alone."""

import functools
import itertools
import re
import tracemalloc
from typing import NamedTuple
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
from matplotlib.colors import to_rgb

from mixts.models import (
    Bernoulli,
    Gaussian,
    Hierarchy,
    Level,
    Poisson,
    Sparse,
    finer,
    linear,
    nonlinear,
    three_level,
)
from mixts.models.picture.layout import Layout, lay_out, rows_by_rank
from mixts.models.picture.render import render
from mixts.models.picture.routes import SHEET, along

SOME = np.array([[0.5, 0.0, -2.0], [0.0, 0.0, 1.0], [1.0, -0.1, 0.0], [0.0, 0.0, 0.0]])
TITLES = ["The Dark Knight", "Little Women", "Parasite", "Cléo from 5 to 7", "Interstellar"]


def weights(rows, columns, keep=0.6):
    draw = np.random.default_rng(rows * columns)
    return draw.normal(size=(rows, columns)) * (draw.random((rows, columns)) < keep)


def crossed():
    """Labels that fit in circles, labels that do not, and two levels in one row."""
    genre = Level("genre", 3, labels=["drama", "comedy", "sci-fi"], mean=0.5)
    director = Level("director", 2, labels=["Christopher Jonathan Nolan", "Agnès Varda"])
    parents = {"genre": weights(5, 3), "director": weights(5, 2)}
    movie = Level("movie", 5, parents=parents, labels=TITLES, link=jax.nn.sigmoid)
    return Hierarchy([genre, director, movie], Bernoulli(), 2)


def skipping():
    """Four levels, two of which also feed the last one past the levels between."""
    country = Level("country", 2)
    studio = Level("studio", 3, parents={"country": weights(3, 2, 1.0)})
    series = Level("series", 4, parents={"studio": weights(4, 3, 1.0)}, labels=TITLES[:4])
    parents = {"series": weights(6, 4), "country": weights(6, 2, 1.0), "studio": weights(6, 3)}
    return Hierarchy([country, studio, series, Level("movie", 6, parents=parents)], Poisson(), 2)


def learned():
    """Every part that can be unknown is."""
    effect = Level("effect", 3, scale=dist.HalfNormal(1.0))
    prior = dist.Normal(0.0, 1.0).expand([4, 3]).to_event(2)
    action = Level("action", 4, parents={"effect": prior}, scale=dist.HalfCauchy(jnp.ones(2)))
    return Hierarchy([effect, action], Gaussian(dist.HalfNormal(1.0)), 2)


def around():
    """Arrows that can only go around the widest row."""
    middle = Level("studio", 12, parents={"country": np.ones((12, 2))})
    parents = {"country": np.ones((3, 2)), "studio": weights(3, 12)}
    return Hierarchy(
        [Level("country", 2), middle, Level("movie", 3, parents=parents)], Poisson(), 1
    )


def flat():
    """Arrows that all come from one side, almost level."""
    first, last = np.eye(12)[:, :1], np.eye(12)[:, -1:]
    parents = {"left": last * np.ones(7), "right": first * np.ones(7)}
    levels = [Level("left", 7), Level("right", 7), Level("movie", 12, parents=parents)]
    return Hierarchy(levels, Poisson(), 1)


def every_stroke():
    """Few vectors, so that the legend has little room, and arrows of every kind."""
    pairs = {"known": [[1.0], [-1.0]], "unknown": dist.Normal(0.0, 1.0).expand([2, 1]).to_event(2)}
    levels = [Level("known", 1), Level("unknown", 1), Level("arm", 2, parents=pairs)]
    return Hierarchy(levels, Poisson(), 1)


def many_plates():
    """Plates side by side, one above another, and one that feeds the last past another."""
    country, director = Level("country", 30), Level("director", 300)
    studio = Level("studio", 200, parents={"country": weights(200, 30, 0.1)})
    parents = {
        "country": weights(1000, 30),
        "director": dist.Normal(0.0, 1.0).expand([1000, 300]).to_event(2),
        "studio": Sparse(np.arange(1000)[:, None] % 200, np.ones((1000, 1))),
    }
    return Hierarchy(
        [country, director, studio, Level("movie", 1000, parents=parents)], Poisson(), 2
    )


def plates_in_line():
    """Three texts for two arrows in one line and one that passes."""
    one_country = Sparse(np.arange(200)[:, None] % 30, np.ones((200, 1)))
    studio = Level("studio", 200, parents={"country": one_country})
    parents = {
        "studio": Sparse(np.arange(1000)[:, None] % 200, np.ones((1000, 1))),
        "country": weights(1000, 30),
    }
    levels = [Level("country", 30), studio, Level("movie", 1000, parents=parents)]
    return Hierarchy(levels, Bernoulli(), 3)


HIERARCHIES = {
    "linear": lambda: linear(SOME, 2),
    "crossed": crossed,
    "skipping": skipping,
    "around": around,
    "flat": flat,
    "learned": learned,
    "every_stroke": every_stroke,
    "three_level": lambda: three_level(weights(4, 2), weights(8, 4), 2),
    "single": lambda: Hierarchy([Level("arm", 1)], Gaussian(2.0), 1),
    "crowded": lambda: linear(weights(12, 12, 1.0), 2),
    "widest": lambda: linear(weights(14, 2), 2),
    "large": lambda: linear(weights(100, 3), 2),
    "many_plates": many_plates,
    "plates_in_line": plates_in_line,
}
every_hierarchy = pytest.mark.parametrize("name", HIERARCHIES)


def artists(figure, prefix):
    """Artists by gid, those whose gid starts with `prefix`."""
    found = [a for a in figure.findobj() if (a.get_gid() or "").startswith(prefix)]
    gids = [artist.get_gid() for artist in found]
    assert len(set(gids)) == len(gids)
    return dict(zip(gids, found, strict=True))


def weight_arrows(figure):
    return {gid: a for gid, a in artists(figure, "arrow:").items() if not gid.endswith(":reward")}


def texts(figure):
    return [text for text in figure.findobj(mpl.text.Text) if text.get_text()]


def words(figure):
    return {text.get_text() for text in texts(figure)}


def expected_arrows(weights, parent="effect", child="action"):
    return {f"arrow:{parent}:{j}:{child}:{i}" for i, j in np.argwhere(weights)}


def dashes(svg, gid):
    """Lengths of the dashes and gaps of an arrow in a file, or None if it is solid."""
    group = next(g for g in ElementTree.parse(svg).iter() if g.get("id") == gid)
    found = re.search(r"stroke-dasharray: ([\d.]+),([\d.]+)", group[0].get("style"))
    return found and tuple(map(float, found.groups()))


class Drawn(NamedTuple):
    """A picture after everything in it has found its place: texts and shapes as boxes in pixels."""

    layout: Layout
    figure: mpl.figure.Figure
    texts: list
    shapes: list


@functools.cache
def drawn(name):
    hierarchy = HIERARCHIES[name]()
    figure = render(hierarchy)
    figure.canvas.draw()
    shapes = [
        x for gid in ("node:", "plate:", "reward", "context") for x in artists(figure, gid).items()
    ]
    return Drawn(
        lay_out(hierarchy),
        figure,
        [(text.get_text(), text.get_window_extent()) for text in texts(figure)],
        [(gid, shape.get_window_extent()) for gid, shape in shapes],
    )


class TestArrows:
    def test_one_for_each_weight_that_is_not_zero(self):
        assert weight_arrows(render(linear(SOME, 2))).keys() == expected_arrows(SOME)

    def test_one_for_each_matrix_that_is_not_zero(self):
        maps = SOME[:, :, None, None] * np.array([[0.0, 1.0], [0.0, 0.0]])
        assert weight_arrows(render(finer(maps))).keys() == expected_arrows(SOME)

    def test_sparse_weights_lead_from_the_parents_they_name_and_padding_is_none(self):
        sparse = Sparse([[2, 0], [1, 0], [0, 2]], [[1.0, 0.0], [0.5, -1.0], [0.0, 0.0]], 3)
        dense = [[0, 0, 1], [-1, 0.5, 0], [0, 0, 0]]
        assert weight_arrows(render(linear(sparse, 2))).keys() == expected_arrows(np.array(dense))

    def test_learned_weights_have_one_for_each_pair_and_learned_sparse_ones_where_they_may_be(self):
        assert weight_arrows(render(learned())).keys() == expected_arrows(np.ones((4, 3)))
        sparse = Sparse([[2, 0], [1, 0]], dist.Normal(0.0, 1.0), 3)
        expected = expected_arrows(np.array([[1, 0, 1], [1, 1, 0]]))
        assert weight_arrows(render(linear(sparse, 2))).keys() == expected

    def test_crossed_and_skipping_parents_all_have_theirs(self):
        for hierarchy in (crossed(), skipping()):
            expected = set()
            for level in hierarchy.levels:
                for parent, known in level.parents.items():
                    expected |= expected_arrows(np.asarray(known), parent, level.name)
            assert weight_arrows(render(hierarchy)).keys() == expected

    def test_every_action_and_the_context_feed_the_reward(self):
        into = artists(render(linear(SOME, 2)), "arrow:").keys()
        assert {gid for gid in into if gid.endswith(":reward")} == {
            *(f"arrow:action:{i}:reward" for i in range(4)),
            "arrow:context:reward",
        }

    def test_they_lead_from_the_parent_to_the_child(self):
        layout = lay_out(skipping())
        nodes = {node.gid: node for node in layout.nodes}
        for arrow in layout.arrows:
            if arrow.gid.endswith(":reward"):
                continue
            parent, j, child, i = arrow.gid.split(":")[1:]
            for gid, (x, y) in (
                (f"{parent}:{j}", arrow.points[0]),
                (f"{child}:{i}", arrow.points[-1]),
            ):
                node = nodes[f"node:{gid}"]
                assert abs(x - node.x) <= node.half_width
                caption = node.lettering.height("below")
                assert abs(y - node.y) <= node.half_height + caption + 1e-9

    def test_larger_weights_are_thicker_and_darker(self):
        drawn = weight_arrows(render(linear([[0.1, 1.0, 3.0]], 2)))
        thin, middle, thick = (drawn[f"arrow:effect:{j}:action:0"] for j in range(3))
        assert thin.get_linewidth() < middle.get_linewidth() < thick.get_linewidth()
        shades = [sum(to_rgb(line.get_color())) for line in (thin, middle, thick)]
        assert shades[0] > shades[1] > shades[2]

    def test_matrices_are_compared_by_spectral_norm(self):
        """The identity has the larger Frobenius norm and trace, the other the larger spectrum."""
        maps = np.zeros((1, 2, 9, 9))
        maps[0, 0], maps[0, 1, 0, 1] = np.eye(9), 2.0
        drawn = weight_arrows(render(finer(maps)))
        widths = [drawn[f"arrow:effect:{j}:action:0"].get_linewidth() for j in range(2)]
        assert widths[0] < widths[1]

    def test_sign_and_doubt_show_without_colour(self, tmp_path):
        render(linear(SOME, 2), tmp_path / "known.svg")
        render(learned(), tmp_path / "learned.svg")
        assert dashes(tmp_path / "known.svg", "arrow:effect:0:action:0") is None
        (dash, _) = dashes(tmp_path / "known.svg", "arrow:effect:2:action:0")
        (dot, _) = dashes(tmp_path / "learned.svg", "arrow:effect:2:action:0")
        assert dash > 2 * dot

    def test_a_legend_explains_the_strokes_that_occur(self):
        assert {"weight (thicker: larger)", "negative weight"} <= words(render(linear(SOME, 2)))
        assert "negative weight" not in words(render(linear(np.abs(SOME), 2)))
        assert "learned weight" in words(render(learned()))


class TestNodes:
    def test_one_for_each_vector_and_the_observed_ones_are_shaded(self):
        figure = render(linear(SOME, 2))
        levels = {"effect": 3, "action": 4}
        expected = {f"node:{name}:{i}" for name, size in levels.items() for i in range(size)}
        latent = artists(figure, "node:")
        assert latent.keys() == expected
        pale = {to_rgb(node.get_facecolor()) for node in latent.values()}
        for name in ("reward", "context"):
            shade = to_rgb(artists(figure, name)[name].get_facecolor())
            assert sum(shade) < min(map(sum, pale)) - 0.2

    def test_names_are_labels_or_the_level_with_an_index(self):
        shown = words(render(crossed()))
        assert {"drama", "comedy", "sci-fi", "Christopher\nJonathan Nolan", "Parasite"} <= shown
        assert {"effect$_{0}$", "action$_{3}$"} <= words(render(linear(SOME, 2)))

    def test_a_name_too_long_for_its_circle_becomes_an_initial(self):
        assert {"$a_{0}$", "$a_{13}$", "effect$_{1}$"} <= words(render(HIERARCHIES["widest"]()))

    def test_dollars_in_labels_are_dollars(self, tmp_path):
        """Two of them would make matplotlib read mathematics, and fail on this one."""
        labels = ["$_^$", "a very long $ name for $_^$ one vector"]
        figure = render(
            Hierarchy([Level("arm", 2, labels=labels)], Poisson(), 1), tmp_path / "a.png"
        )
        assert r"\$_^\$" in words(figure)

    def test_a_long_label_is_cut(self):
        labels = ["one two three four five six seven eight nine ten eleven twelve", "b"]
        shown = words(render(Hierarchy([Level("arm", 2, labels=labels)], Poisson(), 1)))
        (cut,) = [text for text in shown if text.startswith("one")]
        assert cut.endswith("…")
        assert cut.count("\n") == 2


class TestNotes:
    @pytest.mark.parametrize(
        ("hierarchy", "expected"),
        [
            (linear(SOME, 2, effect_cov=3.0, noise=0.5), {"Normal, cov 3", "Gaussian, noise 0.5"}),
            (linear(SOME, 2, effect_cov=np.eye(6)), {"Normal, joint cov"}),
            (linear(SOME, 2, effect_cov=[1.0, 2.0]), {"Normal, diagonal cov"}),
            (linear(SOME, 2, action_cov=np.eye(2)), {"Normal, full cov"}),
            (linear(SOME, 2, action_cov=np.stack([np.eye(2)] * 4)), {"Normal, cov per vector"}),
            (linear(SOME, 2, effect_mean=1.5), {"mean 1.5"}),
            (linear(SOME, 2, effect_mean=[0.0, 1.0]), {"mean given"}),
            (nonlinear(SOME, 2), {"link sigmoid"}),
            (nonlinear(SOME, 2, link=lambda u: u), {"own link"}),
            (learned(), {"scale ~ HalfNormal (learned)", "noise ~ HalfNormal (learned)"}),
            (crossed(), {"genre × 3", "mean 0.5", "Bernoulli", "of context · movie"}),
        ],
    )
    def test_say_the_law_in_words(self, hierarchy, expected):
        assert expected <= words(render(hierarchy))

    def test_say_the_family(self):
        def student(loc, tril):
            return dist.MultivariateStudentT(4.0, loc, tril)

        level = Level("arm", 3, family=student, mean=np.zeros(2))
        shown = words(render(Hierarchy([level], Bernoulli(), 2)))
        assert "family student, cov 1" in shown
        assert not any("mean" in text for text in shown)


class TestPlates:
    def test_a_large_hierarchy_has_a_plate_for_each_level_and_an_arrow_for_each_parent(self):
        figure = render(many_plates())
        assert artists(figure, "node:") == {}
        plates = {f"plate:{name}" for name in ("country", "director", "studio", "movie")}
        assert artists(figure, "plate:").keys() == plates
        assert weight_arrows(figure).keys() == {
            "arrow:country:studio",
            "arrow:country:movie",
            "arrow:director:movie",
            "arrow:studio:movie",
        }
        expected = {"movie × 1,000", "weights, 90% missing", "learned ~ Normal", "1 of 200"}
        assert expected <= words(figure)

    def test_many_arrows_are_too_many_even_between_few_vectors(self):
        assert artists(render(linear(np.ones((14, 10)), 2)), "node:")
        assert artists(render(linear(np.ones((14, 11)), 2)), "plate:")
        assert artists(render(linear(np.ones((15, 1)), 2)), "plate:")

    def test_levels_that_share_a_row_are_counted_together(self):
        parents = {"genre": np.eye(8), "director": np.eye(8)}
        levels = [Level("genre", 8), Level("director", 8), Level("movie", 8, parents=parents)]
        assert artists(render(Hierarchy(levels, Bernoulli(), 2)), "plate:")

    def test_a_million_actions_cost_what_a_hundred_do(self):
        size, parents = 1_000_000, 100_000
        indices = np.stack([np.arange(size) % parents, (np.arange(size) + 1) % parents], axis=1)
        hierarchy = linear(Sparse(indices, np.ones(indices.shape, np.float32), parents), 2)
        render(linear(np.ones((100, 3)), 2))
        tracemalloc.start()
        try:
            figure = render(hierarchy)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert {"action × 1,000,000", "2 of 100,000"} <= words(figure)
        assert peak < size, "less than a byte for each action"


class TestLayout:
    def test_rows_follow_the_longest_path_from_the_top(self):
        country, studio = Level("country", 1), Level("studio", 1, parents={"country": [[1.0]]})
        genre = Level("genre", 1)
        movie = Level("movie", 1, parents={x: [[1.0]] for x in ("country", "studio", "genre")})
        rows = rows_by_rank([country, studio, genre, movie])
        names = [[level.name for level in row] for row in rows]
        assert names == [["country", "genre"], ["studio"], ["movie"]]

    def test_levels_stand_in_the_order_of_the_hierarchy(self):
        layout = lay_out(skipping())
        heights = {node.gid.split(":")[1]: node.y for node in layout.nodes if ":" in node.gid}
        heights |= {node.gid: node.y for node in layout.nodes if node.gid == "reward"}
        order = sorted(heights, key=lambda name: -heights[name])
        assert order == ["country", "studio", "series", "movie", "reward"]

    def test_crossed_parents_stand_side_by_side(self):
        nodes = {node.gid: node for node in lay_out(crossed()).nodes}
        roots = [nodes[f"node:genre:{i}"] for i in range(3)]
        roots += [nodes[f"node:director:{i}"] for i in range(2)]
        assert len({node.y for node in roots}) == 1
        assert [node.x for node in roots] == sorted(node.x for node in roots)

    @every_hierarchy
    def test_rows_stand_centred_above_the_reward(self, name):
        rows = {}
        for node in drawn(name).layout.nodes:
            if node.gid != "context":
                rows.setdefault(node.y, []).extend(
                    [node.x - node.half_width, node.x + node.half_width]
                )
        middles = [(min(sides) + max(sides)) / 2 for sides in rows.values()]
        np.testing.assert_allclose(middles, middles[-1])

    @every_hierarchy
    def test_no_two_nodes_overlap(self, name):
        nodes = drawn(name).layout.nodes
        for one, other in itertools.combinations(nodes, 2):
            apart = abs(one.x - other.x) > one.half_width + other.half_width + one.rise + 0.02
            assert apart or abs(one.y - other.y) > one.half_height + other.half_height + 0.3

    @every_hierarchy
    def test_no_arrow_touches_a_node_that_it_does_not_tie(self, name):
        layout = drawn(name).layout
        for arrow in layout.arrows:
            points = np.concatenate(
                [np.linspace(here, there, 50) for here, there in itertools.pairwise(arrow.points)]
            )
            for node in layout.nodes:
                half = np.array([node.half_width, node.half_height - 1e-6])
                for sheet in range(node.sheets + 1):
                    away = np.abs(points - (node.x, node.y) - sheet * SHEET) / half
                    if node.kind == "plate":
                        inside = (away < 1).all(axis=1)
                    else:
                        inside = np.hypot(*away.T) < 1 - 1e-6
                    assert not inside.any(), (arrow.gid, node.gid)

    @every_hierarchy
    def test_no_arrow_runs_through_a_text_or_off_the_page(self, name):
        """Except the texts of arrows in a picture with plates, which hide what is behind them."""
        layout, figure, boxes, _ = drawn(name)
        own = {arrow.text for arrow in layout.arrows}
        for arrow in layout.arrows:
            points = figure.axes[0].transData.transform(along(arrow.points, np.linspace(0, 1, 200)))
            assert figure.bbox.count_contains(points) == len(points), arrow.gid
            for text, box in boxes:
                assert text in own or not box.count_contains(points), (arrow.gid, text)

    @every_hierarchy
    def test_arrows_with_one_end_in_common_part(self, name):
        arrows = drawn(name).layout.arrows
        for one, other in itertools.combinations(arrows, 2):
            assert (one.points[0], one.points[-1]) != (other.points[0], other.points[-1])
            assert one.points[-1] != other.points[-1]

    @every_hierarchy
    def test_no_two_texts_overlap_and_none_is_cut_off(self, name):
        _, figure, boxes, _ = drawn(name)
        for text, box in boxes:
            assert figure.bbox.x0 < box.x0 < box.x1 < figure.bbox.x1, text
            assert figure.bbox.y0 < box.y0 < box.y1 < figure.bbox.y1, text
        for (text, box), (other, near) in itertools.combinations(boxes, 2):
            assert not box.overlaps(near), (text, other)

    @every_hierarchy
    def test_text_inside_a_shape_fits_and_other_text_stands_clear_of_shapes(self, name):
        _, _, boxes, shapes = drawn(name)
        for (gid, outer), (text, inner) in itertools.product(shapes, boxes):
            inside = outer.x0 < inner.x0 < inner.x1 < outer.x1
            inside &= outer.y0 < inner.y0 < inner.y1 < outer.y1
            assert inside or not outer.overlaps(inner), (gid, text)


class TestFiles:
    @pytest.mark.parametrize(
        ("file", "start"),
        [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.PNG", b"\x89PNG")],
    )
    def test_are_written_by_suffix(self, tmp_path, file, start):
        linear(SOME, 2).render(str(tmp_path / file))
        assert (tmp_path / file).read_bytes().startswith(start)

    def test_svg_keeps_the_names_of_the_parts(self, tmp_path):
        render(linear(SOME, 2), tmp_path / "a.svg")
        text = (tmp_path / "a.svg").read_text()
        for gid in ("node:effect:2", "arrow:effect:0:action:0", "reward"):
            assert f'id="{gid}"' in text
        assert 'id="arrow:effect:1:action:0"' not in text

    def test_an_unknown_suffix_is_refused(self, tmp_path):
        for file in ("a.bmp", "a"):
            with pytest.raises(ValueError, match=rf"{file}.*suffix.*\.png, \.svg, \.pdf.*a\.png"):
                render(linear(SOME, 2), tmp_path / file)
            assert not (tmp_path / file).exists()

    def test_a_missing_folder_is_refused(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"nowhere.*does not exist.*create it"):
            render(linear(SOME, 2), tmp_path / "nowhere" / "a.png")

    def test_notebooks_show_the_picture(self):
        png, size = render(linear(SOME, 2))._repr_png_()
        assert png.startswith(b"\x89PNG")
        assert 500 < size["width"] < 900


class TestSurroundings:
    def test_pyplot_and_its_settings_are_left_alone(self, tmp_path):
        before, figures = dict(mpl.rcParams), plt.get_fignums()
        for hierarchy in (crossed(), many_plates()):
            render(hierarchy, tmp_path / "a.svg")
        assert dict(mpl.rcParams) == before
        assert plt.get_fignums() == figures

    def test_the_look_does_not_depend_on_settings(self):
        def pixels():
            figure = render(crossed())
            figure.canvas.draw()
            return np.asarray(figure.canvas.buffer_rgba())

        plain = pixels()
        style = {"font.size": 20, "text.color": "red", "figure.dpi": 50, "lines.linestyle": "--"}
        style |= {"figure.constrained_layout.use": True, "axes.facecolor": "black"}
        style |= {"figure.facecolor": "black", "patch.linewidth": 5}
        with mpl.rc_context(style):
            np.testing.assert_array_equal(pixels(), plain)

    def test_a_traced_hierarchy_is_refused(self):
        def trace(numbers):
            render(linear(numbers, 2))
            return numbers

        with pytest.raises(ValueError, match=r"traced.*jit.*outside"):
            jax.jit(trace)(jnp.asarray(SOME))

    def test_stacked_hierarchies_are_refused_and_one_of_them_is_drawn(self):
        stacked = jax.vmap(lambda w: linear(w, 2))(jnp.stack([jnp.asarray(SOME)] * 5))
        with pytest.raises(ValueError, match=r"'effect' have shape \(5, 4, 3\).*vmap.*leaf\[0\]"):
            render(stacked)
        one = jax.tree.map(lambda leaf: leaf[0], stacked)
        assert weight_arrows(render(one)).keys() == expected_arrows(SOME)
