import { type CommandContext, line, printable } from '../output.ts';
import type { WaitScreen } from './wait.ts';

const DEFAULT_COLUMNS = 80;

/** The status line below a code: the remaining time, and the keys if stdin is a terminal. */
export function createWaitScreen(link: string, { stdin, stdout }: CommandContext): WaitScreen {
  /** Number of characters on the line now. */
  let shown = 0;
  let text = '';
  const erase = () => {
    if (shown > 0) stdout.write(`\r${' '.repeat(shown)}\r`);
    shown = 0;
  };
  const draw = () => {
    erase();
    // A wrapped line could not be erased.
    const cut = text.slice(0, Math.max(10, (stdout.columns || DEFAULT_COLUMNS) - 1));
    stdout.write(cut);
    shown = cut.length;
  };
  return {
    countdown(left) {
      const time = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, '0')}`;
      const forms = stdin.isTTY
        ? [
            `Waiting for a device, ${time} left   r new code   l link   q leave`,
            `Waiting, ${time} left  r new  l link  q leave`,
            `${time} left  r new  q leave`,
            `${time} left`,
          ]
        : [`Waiting for a device, ${time} left   Ctrl-C leaves`, `${time} left`];
      const room = (stdout.columns || DEFAULT_COLUMNS) - 1;
      text = forms.find((form) => form.length <= room) ?? (forms.at(-1) as string);
      draw();
    },
    close: erase,
    showLink() {
      erase();
      line(stdout, printable(link));
      draw();
    },
  };
}
