"""How the desk looks: one sheet for the screen's package. Meaning is never in a colour alone.

Rule: the colours are those of a palette that colour-blind people tell apart (blue, orange, and light against
dark); with `NO_COLOR` what remains is bold, dim and reversed text.

Source: M. Okabe and K. Ito, "Color Universal Design", 2008; issue "Colour-blind-safe".
"""

__all__ = ["SHEET"]

SHEET = """
Screen { layout: vertical; background: black; color: #d0d0d0; }
#head { height: 1; background: #303030; color: #ffffff; text-style: bold; }
#tabs { height: 1; color: #d0d0d0; }
#panes { height: 1fr; }
#panes > Vertical { height: 1fr; }
.heading { height: 1; }
Lines { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden;
  scrollbar-color: #808080; scrollbar-background: black; scrollbar-color-hover: #d0d0d0;
  scrollbar-color-active: #d0d0d0; scrollbar-background-hover: black; scrollbar-background-active: black; }
Lines > .lines--cursor { text-style: reverse; }
Lines > .lines--here { text-style: bold underline; }
Lines > .lines--strong { text-style: bold; color: #ffffff; }
Lines > .lines--weak { color: #a8a8a8; }
Lines > .lines--good { color: #56b4e9; }
Lines > .lines--warn { color: #e69f00; text-style: bold; }
Lines > .lines--bad { color: #f0e442; text-style: bold underline; }
#talk-list { height: 2fr; }
#talk-view { height: 3fr; border-top: solid #808080; }
#timeline-list { height: 3fr; }
#timeline-view { height: 2fr; border-top: solid #808080; }
#talk-view:focus, #timeline-view:focus { border-top: heavy #ffffff; }
Input { height: 1; border: none; padding: 0 1; background: #303030; color: #ffffff; }
Input:focus { border: none; background: #404040; }
#agents-filter { display: none; }
#agents-filter.open { display: block; }
#picker { height: auto; max-height: 6; display: none; background: #303030; }
#picker.open { display: block; }
#note { height: 1; color: #e69f00; text-style: bold; }
#target { height: 1; color: #56b4e9; display: none; }
#target.open { display: block; }
#writer { height: auto; max-height: 6; min-height: 1; border: none; padding: 0 1; background: #303030;
  color: #ffffff; }
#writer:focus { border: none; background: #404040; }
#keys { height: 1; color: #a8a8a8; }
#small { display: none; }
.small #head, .small #tabs, .small #panes, .small #picker, .small #note, .small #target, .small #writer,
.small #keys { display: none; }
.small #small { display: block; }
Box { align: center middle; background: black 60%; }
Box > Vertical { width: 76; max-width: 100%; height: auto; max-height: 100%; border: solid #a8a8a8;
  background: black; padding: 0 1; }
Box Lines { height: auto; max-height: 16; }
Box .words { height: auto; }
"""
