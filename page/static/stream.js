// The stream of a run: it comes back by itself, says what it had last, and rests while nobody looks at the page.

const KINDS = ["state", "network", "progress", "measured", "overheard", "account"];
const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

export function follow(hear, tell) {
  let source = null;
  let last = "";
  let wait = FIRST_WAIT;
  let timer = 0;

  function open() {
    close();
    source = new EventSource("/events" + (last ? `?last=${encodeURIComponent(last)}` : ""));
    source.onopen = () => {
      wait = FIRST_WAIT;
      tell("live");
    };
    source.onerror = () => {
      tell("the page's server does not answer; trying again");
      close();
      again();
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        last = event.lastEventId;
        hear(kind, JSON.parse(event.data));
      });
    }
  }

  function close() {
    if (source) source.close();
    source = null;
    clearTimeout(timer);
  }

  function again() {
    timer = setTimeout(open, wait + Math.random() * 250);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  }

  // A browser has six connections to one server: pages in the background leave theirs to others.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      tell("resting");
    } else {
      open();
    }
  });
  open();
}
