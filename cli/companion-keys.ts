import type { Messages } from '../lib/companion/messages.ts';
import type { SettingsStore } from '../lib/companion/safety-settings.ts';
import type { Clock } from '../lib/kit/clock.ts';
import type { Asker } from './companion-ask.ts';
import { allGrants, CAPABILITIES, cycle, grantText } from './companion-grants.ts';
import { inboxLines, type Prompt } from './companion-messages.ts';
import type { Screen } from './companion-screen.ts';
import type { Input } from './output.ts';

/** The keys of the capabilities, in the order of `CAPABILITIES`. */
const DIGITS = '1234567890';

/** Bracketed paste: the terminal marks what is pasted. */
const PASTE_MODE_ON = '\u001b[?2004h';
const PASTE_MODE_OFF = '\u001b[?2004l';
const PASTE_BEGINS = '\u001b[200~';
const PASTE_ENDS = '\u001b[201~';

const HELP = [
  'Keys',
  '  m        master toggle: with it off, nearly every command is refused',
  '  g        list the grants; 1 to 9 and 0 switch one, A grants all, N takes all back',
  '  y n a    answer the question: allow, deny, allow and do not ask for this again',
  '  t        messages toggle: with it on, the agent can write to you',
  '  w i      write an answer to the newest message; show the last ones',
  '  r        connect now instead of waiting',
  '  ?        this help',
  '  q        quit (so does Ctrl-C)',
];

export interface KeyParts {
  input: Input;
  screen: Screen;
  asker: Asker;
  settings: SettingsStore;
  messages: Messages;
  prompt: Prompt;
  clock: Clock;
  reconnect(): void;
  quit(): void;
  onFailure(error: unknown): void;
}

/** Reads single keys from a terminal. Returns the end, which gives the terminal back as it was. */
export function readKeys(parts: KeyParts): () => void {
  const { input, screen, asker, settings, messages, prompt, clock, reconnect, quit, onFailure } = parts;
  const change = (what: Parameters<SettingsStore['update']>[0]) => void settings.update(what).catch(onFailure);

  function listGrants(): void {
    const now = clock.now();
    const rows = CAPABILITIES.map(
      (id, index) => `  ${DIGITS[index]}  ${id.padEnd(18)} ${grantText(settings.get(), id, now)}`,
    );
    const { policy } = settings.get();
    screen.print('Grants', ...rows, ...(policy === 'bound' ? [] : [`  (the policy is ${policy}: nothing is allowed)`]));
  }

  function press(key: string): void {
    const digit = DIGITS.indexOf(key);
    if (prompt.isOpen) prompt.key(key);
    else if (key === 'q' || key === '\u0003' || key === '\u0004') quit();
    else if (key === 'm') {
      const masterEnabled = !settings.get().masterEnabled;
      change({ masterEnabled });
      screen.print(`Master toggle is ${masterEnabled ? 'ON' : 'off'}.`);
    } else if (key === 't') {
      const messagesEnabled = !settings.get().messagesEnabled;
      change({ messagesEnabled });
      screen.print(`Messages toggle is ${messagesEnabled ? 'ON' : 'off'}.`);
    } else if (key === 'w') prompt.open();
    else if (key === 'i') screen.print(...inboxLines(messages.list()));
    else if (key === 'g') listGrants();
    else if (key === 'A' || key === 'N') {
      change({ capabilities: key === 'A' ? allGrants() : {} });
      listGrants();
    } else if (digit >= 0) {
      const id = CAPABILITIES[digit] as string;
      change({ capabilities: cycle(settings.get(), id, clock.now()) });
      screen.print(`${id}: ${grantText(settings.get(), id, clock.now())}`);
    } else if (key === 'y' || key === 'a') asker.answer({ allowed: true, dontAskAgain: key === 'a' });
    else if (key === 'n') asker.answer({ allowed: false });
    else if (key === 'r') reconnect();
    else if (key === '?' || key === 'h') screen.print(...HELP);
  }

  let pasting = false;
  const onData = (data: Buffer | string) => {
    let text = String(data);
    // A `y` or an `a` of a pasted text is nobody's yes.
    const begins = text.lastIndexOf(PASTE_BEGINS);
    const ends = text.lastIndexOf(PASTE_ENDS);
    const pasted = pasting || begins >= 0;
    if (begins >= 0 || ends >= 0) pasting = begins > ends;
    if (pasted && text !== '\u0003') text = pasting ? '' : text.slice(ends + PASTE_ENDS.length);
    // Arrows and the like come as one sequence: it is no series of keys.
    if (text.startsWith('\u001b')) {
      if (text === '\u001b' && prompt.isOpen) prompt.cancel();
      return;
    }
    for (const key of text) press(key);
  };
  input.setRawMode?.(true);
  screen.control(PASTE_MODE_ON);
  input.on('data', onData);
  input.resume();
  return () => {
    input.off('data', onData);
    screen.control(PASTE_MODE_OFF);
    input.setRawMode?.(false);
    input.pause();
  };
}
