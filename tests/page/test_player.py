"""The animated step in a real browser: by mouse and keyboard, without motion, without scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import waits

FIRST = "Weight, used in forward and backward"
PEAK = "The head's gradient is written"
#: How long Python may take to start on a busy machine.
PYTHON_MS = 90_000


class Player:
    """The player of a page, as a reader meets it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.stages = page.locator(".film-stage")
        self.nows = page.locator(".film-now")
        self.slider = page.get_by_label("Moment of the step")
        self.play = page.locator('[data-do="play"]')
        self.told = page.locator("[data-told]")

    def label(self, film: int = 0) -> str:
        return self.stages.nth(film).locator('[data-film="label"]').inner_text()

    def total(self, film: int = 0) -> str:
        return self.stages.nth(film).locator('[data-film="total"]').inner_text()

    def event(self, film: int = 0) -> int:
        words = self.stages.nth(film).locator('[data-film="count"]').inner_text()
        return int(words.split()[1].replace(",", ""))

    def cursor(self, film: int = 0) -> float:
        """Where the cursor stands, in percent of the curve's width."""
        style = self.stages.nth(film).locator(".film-cursor").get_attribute("style") or ""
        return float(re.findall(r"translateX\(([\d.]+)%\)", style)[0])

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


@pytest.fixture
def open_player(new_context: Callable[..., BrowserContext]) -> Callable[..., Player]:
    """Open the page in a context of one's own, with a clock that stands until it is moved."""

    def start(address: str = "/step/", *, clock: bool = False, **options: object) -> Player:
        page = new_context(**options).new_page()
        if clock:
            page.clock.install(time=0)
        page.goto(address)
        page.wait_for_selector(".player[data-attached]")
        if clock:
            page.clock.pause_at(3600)
        return Player(page)

    return start


def test_it_plays_only_when_asked_and_before_python_is_there(
    open_player: Callable[..., Player],
) -> None:
    player = open_player(clock=True)
    asked: list[str] = []
    player.page.on("request", lambda request: asked.append(request.url))
    player.page.clock.run_for(3000)
    assert (player.label(), player.event(), player.cursor()) == (FIRST, 1, 0)
    player.play.click()
    expect(player.play).to_have_text("Pause")
    player.page.clock.run_for(4000)
    assert player.event() == 3
    player.play.click()
    expect(player.play).to_have_text("Play")
    here = player.cursor()
    player.page.clock.run_for(4000)
    assert player.cursor() == here > 0
    assert not [url for url in asked if "runtime" in url]


def test_it_plays_to_the_end_and_then_from_the_start(open_player: Callable[..., Player]) -> None:
    player = open_player(clock=True)
    player.page.get_by_label("Speed").select_option("4")
    player.play.click()
    player.page.clock.run_for(10_000)
    expect(player.play).to_have_text("Play")
    assert player.cursor() == 100
    assert player.event() == 552
    player.play.click()
    player.page.clock.run_for(100)
    assert player.event() < 4


def test_speed_is_times_the_normal(open_player: Callable[..., Player]) -> None:
    reached = []
    for speed in ("0.5", "1", "2"):
        player = open_player(clock=True)
        player.page.get_by_label("Speed").select_option(speed)
        player.play.click()
        player.page.clock.run_for(2000)
        reached.append(player.cursor())
    # Before the forward pass every event has the same width and the same time.
    assert reached[1] == pytest.approx(2 * reached[0], rel=0.1)
    assert reached[2] == pytest.approx(2 * reached[1], rel=0.1)


def test_every_key_does_what_the_page_says(open_player: Callable[..., Player]) -> None:
    player = open_player(clock=True)
    player.slider.focus()
    player.press("ArrowRight", "ArrowRight")
    assert player.event() == 3
    player.press("ArrowLeft")
    assert player.event() == 2
    player.press("End")
    assert (player.event(), player.cursor()) == (552, 100)
    player.press("Home")
    assert (player.event(), player.cursor()) == (1, 0)
    player.press(*["PageDown"] * 4)
    assert player.label() == "Layer 1 keeps MLP dropout mask"
    player.press("Shift+ArrowRight")
    assert player.label() == "Layer 2 keeps MLP dropout mask"
    player.press("PageUp")
    assert player.label() == "Layer 1 keeps MLP dropout mask"
    player.press(" ")
    expect(player.play).to_have_text("Pause")
    player.press(" ")
    expect(player.play).to_have_text("Play")
    # Elsewhere in the player the keys work as well, but for those that a control needs itself.
    player.play.focus()
    player.press("ArrowRight")
    assert player.label() == "Layer 2 keeps first layer norm's input"
    player.press(" ")
    expect(player.play).to_have_text("Pause")
    player.press("ArrowLeft")
    expect(player.play).to_have_text("Play")


def test_keys_outside_the_player_are_the_pages(open_player: Callable[..., Player]) -> None:
    player = open_player()
    player.press("ArrowRight", " ")
    assert player.event() == 1
    expect(player.play).to_have_text("Play")


def test_scrubbing_by_slider_and_by_the_curve(open_player: Callable[..., Player]) -> None:
    player = open_player()
    player.slider.fill("9500")
    assert player.label() == "The optimizer steps, and the gradients go"
    plot = player.stages.first.locator(".film-plot")
    box = plot.bounding_box()
    assert box
    height = box["y"] + box["height"] / 2
    player.page.mouse.move(box["x"] + 0.1 * box["width"], height)
    player.page.mouse.down()
    assert player.label().startswith("Layer ")
    assert player.cursor() == pytest.approx(10, abs=0.2)
    player.page.mouse.move(box["x"] + 0.97 * box["width"], height)
    player.page.mouse.up()
    assert player.cursor() == pytest.approx(97, abs=0.2)
    player.page.mouse.move(box["x"] + 0.5 * box["width"], height)
    assert player.cursor() == pytest.approx(97, abs=0.2)
    assert player.slider.input_value() == str(round(player.cursor() * 100))
    # The arrow keys lead on from where the curve was let go.
    player.press("Home")
    assert player.event() == 1


def test_the_peak_is_marked_named_and_one_click_away(open_player: Callable[..., Player]) -> None:
    player = open_player()
    expect(player.stages.first.locator(".film-name")).to_have_text("Peak 199.5 GB")
    expect(player.stages.first.locator(".film-gpu")).to_have_text("80 GB GPU")
    player.page.get_by_role("button", name="Go to the peak").first.click()
    assert (player.label(), player.total()) == (PEAK, "199.5 GB")
    expect(player.stages.first.locator('[data-film="over"]')).to_be_visible()
    expect(player.stages.first.locator('[data-film="fits"]')).to_be_hidden()
    assert "This is the peak." in (player.slider.get_attribute("aria-valuetext") or "")


def test_what_is_in_memory_adds_up_to_what_is_said(open_player: Callable[..., Player]) -> None:
    player = open_player()
    player.page.get_by_role("button", name="Go to the peak").first.click()
    sizes = player.nows.first.locator("tr:visible .film-size").all_inner_texts()
    assert sizes == ["13.5 GB", "0.3 GB", "53.9 GB", "27.0 GB", "104.2 GB", "0.8 GB"]
    touched = player.nows.first.locator('[data-touched="taken"] th')
    expect(touched).to_have_text("Gradients")


def test_a_hand_step_is_told_and_playing_is_not(open_player: Callable[..., Player]) -> None:
    player = open_player(clock=True)
    player.page.clock.run_for(1000)
    player.page.get_by_role("button", name="Forward", exact=True).click()
    player.page.clock.run_for(1000)
    expect(player.told).to_contain_text("40.4 GB in memory")
    player.play.click()
    player.page.clock.run_for(6000)
    expect(player.told).to_be_empty()
    player.play.click()
    player.page.clock.run_for(1000)
    expect(player.told).to_contain_text("in memory")


def test_layers_are_one_row_that_opens_down_to_the_event(
    open_player: Callable[..., Player],
) -> None:
    player = open_player()
    steps = player.nows.first.locator(".film-list")
    assert steps.locator(".film-go").count() == 4
    expect(steps.locator('[aria-current="step"]')).to_contain_text("Before the step")
    for row in ("Forward", "Forward, layers 1 to 32", "Forward, layer 7"):
        steps.get_by_role("button", name=f"{row}: its parts", exact=True).click()
    steps.get_by_role("button", name="Layer 7 keeps GELU's input").click()
    assert player.label() == "Layer 7 keeps GELU's input"
    expect(steps.locator('[aria-current="step"]')).to_contain_text("GELU's input")
    steps.get_by_role("button", name="Forward, layers 1 to 32: its parts", exact=True).click()
    expect(steps.locator('[aria-current="step"]')).to_contain_text("Forward, layers 1 to 32")
    expect(steps.get_by_text("Layer 7 keeps GELU's input")).to_be_hidden()


def test_two_runs_play_together_on_one_axis(open_player: Callable[..., Player]) -> None:
    player = open_player(clock=True)
    expect(player.stages.nth(1)).to_be_hidden()
    player.page.get_by_label("Beside it").select_option("full")
    expect(player.stages.nth(1)).to_be_visible()
    expect(player.stages.nth(1)).to_contain_text("every layer recomputed")
    player.play.click()
    player.page.clock.run_for(25_000)
    player.play.click()
    assert player.cursor(0) == player.cursor(1) > 50
    # Both are in the same layer, though one has many more events behind it.
    where = player.stages.locator('[data-film="where"]').all_inner_texts()
    assert where[0] == where[1]
    assert where[0].startswith("Backward, layer ")
    player.page.get_by_role("button", name="Go to the peak").nth(1).click()
    assert player.total(1) == "110.7 GB"
    # A step of the hand goes to whichever event is next, in either run.
    before = player.event(0), player.event(1)
    player.page.get_by_role("button", name="Forward", exact=True).click()
    assert player.event(1) == before[1] + 1
    player.page.get_by_label("Beside it").select_option("")
    expect(player.stages.nth(1)).to_be_hidden()


def test_every_step_of_the_hand_comes_to_every_event(open_player: Callable[..., Player]) -> None:
    player = open_player()
    player.page.get_by_label("Beside it").select_option("full")
    player.slider.focus()
    player.slider.fill("5000")
    seen = [(player.event(0), player.event(1))]
    player.press(*["ArrowRight"] * 40)
    seen.append((player.event(0), player.event(1)))
    player.press(*["ArrowLeft"] * 40)
    seen.append((player.event(0), player.event(1)))
    assert seen[0] == seen[2]
    assert seen[1][0] > seen[0][0]
    assert seen[1][1] > seen[0][1] + 30


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("beside", ["", "full"])
def test_words_of_any_length_move_nothing(
    width: int, beside: str, open_player: Callable[..., Player]
) -> None:
    player = open_player(viewport={"width": width, "height": 900})
    player.page.get_by_label("Beside it").select_option(beside)
    player.slider.focus()
    tops = set()
    script = "stages => stages.map(one => one.querySelector('.film-plot').offsetTop)"
    for key in ["Home", *["ArrowRight"] * 22, "End", *["PageUp"] * 6, *["ArrowLeft"] * 22]:
        player.press(key)
        tops.add(tuple(player.stages.evaluate_all(script)))
    assert len(tops) == 1
    assert player.page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_where_motion_is_unwanted_nothing_plays_and_everything_can_be_stepped(
    open_player: Callable[..., Player],
) -> None:
    player = open_player(clock=True, reduced_motion="reduce")
    expect(player.play).to_be_hidden()
    expect(player.page.get_by_label("Speed")).to_be_hidden()
    expect(player.page.locator(".still").first).to_be_visible()
    player.slider.focus()
    player.press(" ")
    player.page.clock.run_for(3000)
    assert player.event() == 1
    player.press("ArrowRight")
    assert player.event() == 2
    player.page.get_by_role("button", name="Forward", exact=True).click()
    assert player.event() == 3


def test_without_scripts_the_pictures_tell_the_step(
    new_context: Callable[..., BrowserContext],
) -> None:
    page = new_context(java_script_enabled=False).new_page()
    page.goto("/step/")
    for selector in (".player-screen", ".player-run", ".still-go >> nth=0"):
        expect(page.locator(selector)).to_be_hidden()
    stills = page.locator(".still")
    assert stills.count() == 6
    for still in stills.all():
        expect(still).to_be_visible()
        picture = still.locator("svg.still-picture").bounding_box()
        assert picture
        assert picture["height"] > 60
    expect(stills.nth(2)).to_contain_text("199.5 GB")


def test_paper_gets_the_pictures(open_player: Callable[..., Player]) -> None:
    player = open_player()
    player.page.emulate_media(media="print")
    expect(player.page.locator(".player-screen")).to_be_hidden()
    expect(player.page.locator(".still").nth(5)).to_be_visible()


def test_a_picture_leads_to_its_moment(open_player: Callable[..., Player]) -> None:
    player = open_player()
    player.page.get_by_role("button", name="The peak: show in the player").click()
    assert player.label() == PEAK
    expect(player.slider).to_be_focused()


def test_any_run_is_played_by_python(open_player: Callable[..., Player]) -> None:
    player = open_player()
    page = player.page
    page.get_by_text("Another run", exact=True).click()
    page.get_by_label("Recomputation", exact=True).select_option("selective")
    title = player.stages.first.locator(".film-title")
    expect(title).to_have_text("LLaMA 7B, the attention core recomputed", timeout=PYTHON_MS)
    page.get_by_role("button", name="Go to the peak").first.click()
    assert player.total() == "116.1 GB"
    page.get_by_label("Micro-batches a step", exact=True).fill("2")
    expect(page.locator(".film-list").first).to_contain_text("of micro-batch 1")
    expect(page.locator(".still").first).to_be_visible()
    assert "recompute=selective" in page.url
    assert "micro_batches=2" in page.url
    page.get_by_label("Beside it").select_option("none")
    expect(player.stages.nth(1)).to_contain_text("nothing recomputed")
    # What cannot be says so beside its field, and the last film stays.
    page.get_by_role("textbox", name="Sequence length").fill("many")
    expect(page.locator("#film-sequence-note")).to_contain_text("cannot be used")
    expect(title).to_have_text("LLaMA 7B, the attention core recomputed")
    page.get_by_role("textbox", name="Sequence length").fill("2k")
    expect(page.locator("#film-sequence-note")).to_be_empty()
    assert player.total() != "116.1 GB"


def test_an_address_carries_a_run(open_player: Callable[..., Player]) -> None:
    player = open_player("/step/#model=gpt2-xl&sequence=1024&micro_batch=2&recompute=full")
    title = player.stages.first.locator(".film-title")
    expect(title).to_contain_text("every layer recomputed", timeout=PYTHON_MS)
    expect(player.page.locator('[data-summary="run"]')).to_contain_text("1,024 tokens, 2 sequences")


def test_python_that_does_not_come_leaves_the_films_that_are_there(
    new_context: Callable[..., BrowserContext], watch: Any
) -> None:
    watch.expect("pyodide|Failed to load")
    context = new_context()
    context.route("**/pyodide.mjs", lambda route: route.abort())
    page = context.new_page()
    page.goto("/step/")
    player = Player(page)
    page.get_by_label("Beside it").select_option("selective")
    expect(page.locator("[data-said]")).to_contain_text("Python could not start")
    expect(player.stages.nth(1)).to_be_hidden()
    page.get_by_label("Beside it").select_option("full")
    expect(player.stages.nth(1)).to_be_visible()
    player.slider.focus()
    player.press("End")
    assert player.event(1) == 616
    # A second try may succeed, and then everything can be chosen.
    context.unroute("**/pyodide.mjs")
    page.get_by_role("button", name="Try again").click()
    page.get_by_text("Another run", exact=True).click()
    expect(page.get_by_label("Recomputation", exact=True)).to_be_enabled()
    page.get_by_label("Beside it").select_option("selective")
    expect(player.stages.nth(1)).to_contain_text("attention core", timeout=PYTHON_MS)


def test_leaving_the_page_stops_it_and_coming_back_begins_anew(
    open_player: Callable[..., Player],
) -> None:
    player = open_player()
    page = player.page
    waits.links(page)
    # The cursor that is moved, though it is on no page any more.
    page.evaluate(
        """() => {
            window.cursor = document.querySelector(".film-cursor");
            window.moved = 0;
            new MutationObserver(() => (moved += 1)).observe(cursor, { attributes: true });
        }"""
    )
    player.play.click()
    page.wait_for_function("() => moved > 5")
    page.get_by_role("link", name="Results").first.click()
    page.wait_for_selector("h1:has-text('Results')")
    page.wait_for_function("() => !cursor.isConnected")
    waits.frames(page)
    moved = page.evaluate("moved")
    waits.frames(page, 30)
    assert page.evaluate("moved") == moved
    page.go_back()
    page.wait_for_selector(".player[data-attached]")
    assert Player(page).event() == 1
    expect(Player(page).play).to_have_text("Play")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_two_runs_with_open_lists_break_no_accessibility_rule(
    scheme: str,
    width: int,
    open_player: Callable[..., Player],
    axe: Callable[[Page], None],
) -> None:
    player = open_player(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 900}
    )
    page = player.page
    page.get_by_label("Beside it").select_option("full")
    page.get_by_text("Another run", exact=True).click()
    page.get_by_role("button", name="Go to the peak").first.click()
    for steps in player.nows.locator(".film-list").all():
        steps.get_by_role("button", name="Backward: its parts", exact=True).click()
    axe(page)
