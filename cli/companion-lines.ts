import { authority, isSecure } from '../lib/companion/link/endpoints.ts';
import type { LinkState } from '../lib/companion/link/state.ts';
import type { Answer } from './companion-ask.ts';
import type { CommandRow } from './companion-view.ts';
import { printable, type Style } from './output.ts';

const two = (value: number) => String(value).padStart(2, '0');

/** `14:03:59` of this machine's clock. */
export function timeOfDay(epoch: number): string {
  const date = new Date(epoch);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The state of the link, in one short line. */
export function stateText(state: LinkState): string {
  switch (state.name) {
    case 'unpaired':
      return `not paired${state.reason === undefined ? '' : `: the relay says "${printable(state.reason)}"`}`;
    case 'connecting':
      return `connecting to ${authority(state.endpoint.url)} (${printable(state.endpoint.role)})`;
    case 'authenticating':
      return `connected to ${authority(state.endpoint.url)}, authenticating`;
    case 'online': {
      const plain = isSecure(state.endpoint.url) ? 'TLS' : 'no TLS';
      return `online: ${authority(state.endpoint.url)} (${printable(state.endpoint.role)}, ${plain})`;
    }
    case 'waiting': {
      const time =
        state.wait >= 60_000 ? `${Math.round(state.wait / 60_000)} min` : `${Math.ceil(state.wait / 1000)} s`;
      return `offline: ${printable(state.reason)}; again in ${time}`;
    }
    case 'stopped':
      return 'stopped';
  }
}

/** `14:03:59  POST /tap_text      403  user_denied   12 ms  tap "Buy"`. */
export function commandText({ method, path, decision, status, took, summary }: CommandRow, style: Style): string {
  const call = `${printable(method).slice(0, 8).padEnd(4)} ${printable(path).slice(0, 40).padEnd(20)}`;
  const paint = status < 400 ? style.green : status === 403 || status === 423 ? style.yellow : style.red;
  const outcome = paint(`${status}  ${printable(decision).padEnd(10)}`);
  return `${call} ${outcome} ${`${Math.round(took)} ms`.padStart(8)}  ${style.dim(printable(summary))}`.trimEnd();
}

export const ANSWERS: Record<Answer, string> = {
  allowed: 'allowed',
  denied: 'denied',
  timeout: 'denied: nobody answered in time',
  gone: 'dropped: the connection was lost, and whoever asked was told so',
  nobody:
    'denied: there is no terminal to ask on (--approve always allows without asking, --json lets a script answer)',
};
