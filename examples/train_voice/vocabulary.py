"""Words that the training text is made of: common ones by kind, and SCOWL's lists by how common they are."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "words"
LEVELS = {"level10": 0.4, "level20": 0.38, "level35": 0.22}  # SCOWL: about 4,000, 7,000 and 27,000 words

NOUNS = """time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night point home water room
mother area money story fact month lot right study book eye job word business issue side kind head house service
friend father power hour game line end member law car city community name president team minute idea kid body
information back parent face others level office door health person art war history party result change morning
reason research girl guy moment air teacher force education foot boy age policy music market sense dog cat bird tree
river mountain garden kitchen table chair window street bread coffee tea milk apple orange cake soup fish chicken
rice sugar salt song movie picture phone computer machine train bus plane ship bicycle road bridge station airport
hotel beach island forest rain snow wind storm sun moon star summer winter spring autumn doctor nurse lawyer farmer
driver singer writer painter engineer letter paper pen box bag shirt shoe hat coat dress ring clock watch camera
radio key glass bottle cup plate knife fork spoon fire light lamp candle stone gold silver iron wood wall floor roof
field farm horse cow sheep pig goat duck mouse lion bear snake spider bee fly egg meat butter cheese honey salad
potato tomato onion carrot lemon banana grape pepper dinner lunch breakfast meal restaurant store shop bank library
museum church hospital police soldier army king queen prince castle tower village town neighbor cousin uncle aunt
brother sister son daughter husband wife baby grandmother grandfather captain judge mayor actor artist dentist baker
guest stranger tourist crowd crew boat sail wheel engine truck garage gate fence yard path hill valley lake ocean
desert stream cloud fog ice sky earth leaf flower grass seed root branch pocket jacket sock belt glove scarf button
needle thread rope chain hammer nail saw ladder bucket brush paint soap towel bed pillow blanket sheet mirror shelf
drawer stairs hallway ceiling basement bath toy ball doll puzzle card prize medal ticket trip journey map flag
language lesson test exam mark grade page chapter sentence poem novel magazine newspaper article photo film stage
concert piano guitar violin drum voice sound noise whisper shout secret joke dream fear hope pain pleasure luck
accident mistake danger rescue plan project meeting report message email letter address price cost bill coin dollar
pound tax profit trade factory worker boss manager customer product tool model science experiment chemical metal
oil gas energy electricity battery screen button program website network speed temperature weather season weekend
holiday birthday wedding gift surprise memory truth lie promise rule choice chance risk goal success failure effort
answer reply opinion advice example detail shape size color circle square corner edge middle top bottom distance
direction north south east west left inch mile second decade century future past heart brain blood bone skin hair
nose mouth tooth ear neck shoulder arm finger knee leg toe""".split()

VERBS = """see find give tell work call try ask need feel become leave put mean keep let begin help show hear play
run move live believe bring write sit stand lose pay meet include continue set learn change lead understand watch
follow stop create speak read spend grow open walk win teach offer remember consider love buy wait serve die send
build stay fall cut reach kill raise pass sell decide return explain hope develop carry break receive agree support
hold turn want like use know think take make come go get look start miss draw drive eat drink sleep sing dance cook
clean fix paint catch throw jump swim climb visit enjoy finish close lock push pull lift drop pick choose count
measure weigh cost save borrow lend share steal hide seek search discover invent design print copy mark check test
study train practice fail pass laugh cry smile shout whisper talk discuss argue complain promise refuse accept allow
forbid invite thank greet welcome marry kiss hug fight protect attack defend escape chase hunt feed plant water pick
dig bury burn boil bake fry freeze melt pour fill empty mix stir taste smell touch hurt heal rest relax wake dress
wear wash dry iron fold hang tie sew knit shake wave point nod bow kick hit beat press ring knock cross enter arrive
depart travel fly sail ride park wonder guess imagine dream doubt worry fear hate prefer wish expect plan prepare
arrange manage control order repair replace remove improve reduce increase rise float sink slide roll spin""".split()

ADJECTIVES = """good new first last long great little own other old right big high different small large next early
young important few public bad same able red blue green white black yellow brown purple pink gray happy sad angry
quiet loud bright dark warm cold hot cool fast slow heavy light strong weak clean dirty rich poor cheap easy hard
simple strange beautiful lovely quick sharp soft sweet bitter fresh dry wet empty full open closed deep wide narrow
tall short round flat rough smooth clear true false real wrong ready busy free safe tired hungry thirsty sick healthy
careful polite gentle brave clever lazy noisy golden wooden modern ancient local famous natural perfect special tiny
huge enormous expensive dangerous broken frozen hidden lonely friendly curious nervous proud jealous silly serious
honest loyal patient generous selfish stubborn shy bold calm excited bored afraid surprised worried pleased private
common rare useful useless possible impossible necessary certain several many second third twelfth half single double
whole thick thin solid liquid electric digital foreign royal southern northern""".split()

ADVERBS = """quickly slowly today tomorrow yesterday now later soon often never always sometimes really very quite
almost again still already here there everywhere outside inside together alone carefully quietly loudly early late
well badly suddenly finally probably maybe perhaps certainly usually rarely seldom hardly nearly exactly simply
easily gently softly happily sadly badly deeply twice once forever instead anyway somewhere nowhere upstairs
downstairs abroad ahead away""".split()

NAMES = """John Mary Peter Susan David Anna Robert Linda Tom Emma James Sarah Michael Laura Daniel Julia Paul Alice
George Helen Frank Kate Henry Grace Jack Lucy Sam Rose Ben Jane Charles Nancy Kevin Karen Brian Diana Martin Betty
Oliver Sophie Victor Clara Simon Ruth Walter Ellen London Paris Boston Chicago Texas California England France Spain
Japan China India Canada Africa Europe America Germany Italy Russia Brazil Mexico Egypt Australia Monday Tuesday
Wednesday Thursday Friday Saturday Sunday January February March April May June July August September October
November December""".split()

NUMBERS = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety""".split()

GLUE = """the a an and or but if so of to in on at by for with from about into over under after before between
through against during without within along among behind beyond near toward around past up down off out is are was
were be been being am has have had do does did will would can could may might must shall should not no nor than then
that this these those it he she they we you I me him her us them my your his its our their mine yours who whom whose
which what when where why how as because while until although though unless since whether both either neither each
every any some many much more most few less least all other another such only own same too very just also even ever
there here yes please""".split()

PHRASES = """Hello there, how are you?|I am fine, thank you.|Good morning, everyone.|What is your name?|Nice to meet
you.|See you later.|Have a nice day.|Thank you very much.|You are welcome.|I am sorry about that.|Excuse me,
please.|Where are you going?|What time is it?|How much does it cost?|Can you help me?|Of course, I can.|No problem at
all.|That sounds great.|I do not know.|I think so too.|Are you sure about that?|Wow, that is amazing.|Oh no, what
happened?|Really? Tell me more.|Let us go home.|It is getting late.|I will call you tomorrow.|Do not worry about
it.|What do you think?|I agree with you.|That is a good idea.|Maybe we should try again.|How was your day?|It was very
busy.|I would like a cup of coffee.|Could you repeat that, please?|Yes, I understand.|No, not yet.|Welcome to the
show.|Thanks for having me.|Today we are talking about science.|This is a test of the system.|Dia is an open weights
text to dialogue model.|You get full control over scripts and voices.|Try it now on Git hub or Hugging Face.|The quick
brown fox jumps over the lazy dog.|She sells sea shells by the sea shore.|Happy birthday to you.|Please sit down.|Come
in, the door is open.|Look at the stars.|Listen to the music.|I love this song.|We are almost there.|Hurry up, we are
late.|Take your time.|Be careful on the road.|It is raining outside.|The sun is shining.|Who is there?|It is me.|Why
not?|Never mind.|I have no idea.|This model runs on your computer.|It speaks with two voices.|Hello world.|Hi, nice to
see you again.|Speech is generated from text.|Yes.|No.|Okay.|Maybe.|I'm not sure.|I don't think so.|It's all right.|We
can't do that.|You're late again.|That's what I said.|They won't come.|He didn't know.|She couldn't find it.|What's
wrong?|Let's begin.|I've been there.|We'll see.|Isn't it nice?|There's more.|Who's next?""".replace("\n", " ").split("|")


@lru_cache
def level(name: str) -> list[str]:
    """One of SCOWL's lists."""
    return (FOLDER / f"{name}.txt").read_text().split()


@lru_cache
def ending(name: str, suffix: str) -> list[str]:
    """Its words with an ending, which mostly tells their kind."""
    return [word for word in level(name) if word.endswith(suffix) and len(word) > len(suffix) + 2]
