"""Numbers, dates and abbreviations in words: each kind of writing, and properties of every result."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tts_core.text.growth import LINEAR, UNITS, growth
from tts_core.text.spoken import FRACTIONS, spoken

SAID = {
    # numbers
    "0 and 7": "zero and seven",
    "I have 12 of 21.": "I have twelve of twenty-one.",
    "100, 101, 115, 999": "one hundred, one hundred one, one hundred fifteen, nine hundred ninety-nine",
    "1,234 or 10000": "one thousand two hundred thirty-four or ten thousand",
    "999,999!": "nine hundred ninety-nine thousand nine hundred ninety-nine!",
    "5,000,000 and 3 million": "five million and three million",
    "007": "zero zero seven",
    "1234567890123456": "one two three four five six seven eight nine zero one two three four five six",
    "-5 degrees, x-5": "minus five degrees, x-five",
    "MP3, 5x, B2B": "MP three, five x, B two B",
    "10-12 of 3–4": "ten to twelve of three to four",
    "555-123-4567": "five five five, one two three, four five six seven",
    "555-1234 or (555) 123-4567": "five five five, one two three four or five five five, one two three, "
    "four five six seven",
    "500-1000 of 100-200": "five hundred to one thousand of one hundred to two hundred",
    "#5 of # 5": "number five of # five",
    "1,000,000,000,000,000th": " ".join(["one", *["zero"] * 14, "zeroth"]),
    # fractions and units
    "1/2, 3/4 and 2 1/2": "one half, three quarters and two and a half",
    "½ or 1¾ of ⅔": "one half or one and three quarters of two thirds",
    "24/7, 9/11, 4/2, 1/2/x": "twenty-four/seven, nine/eleven, four/two, one/two/x",
    "5km, 1 kg, 60 mph": "five kilometers, one kilogram, sixty miles per hour",
    "-3 °C": "minus three degrees Celsius",
    "90° or 6 ft. tall": "ninety degrees or six feet tall",
    # dates
    "March 3, 2024": "March third, twenty twenty-four",
    "on July 4th and May 31": "on July fourth and May thirty-first",
    "Jan. 5 to Feb 6, Sept. 2020": "January fifth to February sixth, September twenty twenty",
    "3 March 1999 or the 5th May": "the third of March nineteen ninety-nine or the fifth of May",
    "June 3-5, March 2024, May 5,000": "June third to fifth, March twenty twenty-four, May five thousand",
    "On 5 Jan. He left.": "On the fifth of January. He left.",
    "2024-03-14": "March fourteenth, twenty twenty-four",
    "12/25/1999, 25/12/99, 3/4/05": "December twenty-fifth, nineteen ninety-nine, December twenty-fifth, "
    "nineteen ninety-nine, March fourth, two thousand five",
    "99/99/2024": "ninety-nine/ninety-nine/twenty twenty-four",
    # decimals
    "3.14": "three point one four",
    "0.05, .5 and 1,000.25": "zero point zero five, zero point five and one thousand point two five",
    "version 1.2.10": "version one point two point ten",
    "I paid 5. 3 left.": "I paid five. three left.",
    # years
    "In 1999, 1905 and 1900": "In nineteen ninety-nine, nineteen oh five and nineteen hundred",
    "1066 is early": "one thousand sixty-six is early",
    "2000, 2005, 2010, 2024": "two thousand, two thousand five, twenty ten, twenty twenty-four",
    "1914-1918": "nineteen fourteen to nineteen eighteen",
    "the 1990s, the '80s, the 2000s": "the nineteen nineties, the eighties, the two thousands",
    "2,024 people": "two thousand twenty-four people",
    # money
    "$5, $1, $0": "five dollars, one dollar, zero dollars",
    "$3.50, $1.01 and $0.99": "three dollars and fifty cents, one dollar and one cent and ninety-nine cents",
    "$.50": "fifty cents",
    "$2.5 million": "two point five million dollars",
    "$1,234.00": "one thousand two hundred thirty-four dollars",
    "-$5": "minus five dollars",
    "€20, 20€, 20 €": "twenty euros, twenty euros, twenty euros",
    "EUR 5 and 7.25 EUR": "five euros and seven euros and twenty-five cents",
    "1 EUR": "one euro",
    "£3.01": "three pounds and one penny",
    "$2.5M, $3bn, £4k": "two point five million dollars, three billion dollars, four thousand pounds",
    f"${'1' * 20}.25": f"{' '.join(['one'] * 20)} dollars and twenty-five cents",
    "5 USD": "five dollars",
    "1.5 dollars": "one point five dollars",
    # percent
    "50%, 0.5 %, -3%": "fifty percent, zero point five percent, minus three percent",
    "1999%": "one thousand nine hundred ninety-nine percent",
    # times
    "at 3:05": "at three oh five",
    "7:00 or 07:30": "seven o'clock or seven thirty",
    "12:00 or 13:00": "twelve o'clock or thirteen hundred",
    "15:30, 14:00, 00:00, 0:15": "fifteen thirty, fourteen hundred, midnight, zero fifteen",
    "3:05 pm, 12:00 AM": "three oh five p m, twelve a m",
    "5pm and 11 a.m.": "five p m and eleven a m.",
    "At 9 a.m. He left.": "At nine a m. He left.",
    "at 9 a.m. sharp": "at nine a m sharp",
    "12:30:01": "twelve thirty and one second",
    "I am 5 amused": "I am five amused",
    # ordinals
    "1st 2nd 3rd 4th": "first second third fourth",
    "the 21st, 112th, 1,000th, 20TH": "the twenty-first, one hundred twelfth, one thousandth, twentieth",
    "5th, 8th, 9th, 12th, 30th": "fifth, eighth, ninth, twelfth, thirtieth",
    # abbreviations
    "Mr. Jones and Mrs. Smith": "Mister Jones and Missus Smith",
    "Ms. Li, Prof. Wu": "Miss Li, Professor Wu",
    "Dr. Who lives on Mulholland Dr.": "Doctor Who lives on Mulholland Drive.",
    "I saw the Dr. It was late.": "I saw the Doctor. It was late.",
    "On Sunset Dr. there is rain": "On Sunset Drive there is rain",
    "St. John, Main St.": "Saint John, Main Street.",
    "In St. Louis. On Main St. They wait.": "In Saint Louis. On Main Street. They wait.",
    "at 5 Main St., left": "at five Main Street, left",
    "5th Ave. is long; Sunset Blvd.": "fifth Avenue is long; Sunset Boulevard.",
    "John Smith Jr. came": "John Smith Junior came",
    "No. 5, Fig. 3, p. 12": "number five, figure three, page twelve",
    "Capt. Ahab of Mt. Etna": "Captain Ahab of Mount Etna",
    "Smith Co. and Brown Inc. They": "Smith Company and Brown Incorporated. They",
    "Say no. Then go.": "Say no. Then go.",
    "cats vs. dogs, e.g. mine, i.e. Tom": "cats versus dogs, for example mine, that is Tom",
    "salt, oil, etc. Then stir.": "salt, oil, et cetera. Then stir.",
    "salt, etc., and": "salt, et cetera, and",
    "you & me, AT&T": "you and me, AT&T",
}  # fmt: skip


@pytest.mark.parametrize("text", SAID)
def test_said(text: str) -> None:
    assert spoken(text) == SAID[text]


@given(
    st.text(
        st.characters(exclude_categories=("Nd",), exclude_characters=f".&#‘´`′‛＇ʼ{''.join(FRACTIONS)}"),
        max_size=60,
    )
)
def test_other_text_stays(text: str) -> None:
    assert spoken(text) == text


TEXT = st.text(st.sampled_from("0123456789.,:;-–%$€£'’& \n") | st.characters(), max_size=60)


@given(TEXT)
@example("1" * 5000)
@example("$" + "1" * 5000)
@example("$" + "1" * 5000 + ".50")
@example("1" * 5000 + "th")
@example("1" * 5000 + "%")
@example("٣ and ３")
@example("$" * 30 + "5")
@example("0`A")
@example("A`0")
def test_no_digit_is_left_and_nothing_is_said_twice(text: str) -> None:
    said = spoken(text)
    assert not re.search(r"\d", said)
    assert spoken(said) == said


@given(st.lists(st.sampled_from([text for text in SAID if text[-1] != "."]), min_size=2, max_size=4))
def test_sentences_do_not_change_each_other(texts: list[str]) -> None:
    assert spoken("\n; ".join(texts)).split() == "\n; ".join(spoken(text) for text in texts).split()


@pytest.mark.parametrize("unit", UNITS)
def test_takes_linear_work(unit: str) -> None:
    assert growth(spoken, unit) < LINEAR
