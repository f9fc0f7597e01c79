import type { FreezeState } from '../../lib/operations/freeze-state.ts';
import { freezeOf, freezeText } from '../freeze-text.ts';
import { type OperatorRelay, openOperatorRelay } from '../operator-relay.ts';
import { flag, type Options } from '../options.ts';
import { asInvoked, type CommandContext, createStyle, line, printJson, type Style } from '../output.ts';
import { pause } from '../pause.ts';
import { followEvents, mayRecover } from '../relay-events.ts';
import { onSignals } from '../signals.ts';
import { type Device, devicesOf, nameOf } from './rows.ts';
import { cutLine, deviceLines, stateText } from './table.ts';

/** Milliseconds between updates of ages and round trips, which cause no events. */
const PERIOD = 3000;
const ENTER = '\u001b[?1049h\u001b[?25l';
const LEAVE = '\u001b[?25h\u001b[?1049l';

type Change = 'paired' | 'revoked' | 'connected' | 'stale' | 'offline' | 'reduced';

interface State {
  devices: Device[];
  frozen: FreezeState | null;
}

/** Shows the devices as they are now, again and again. */
interface View {
  show(state: State): void;
  /** The relay does not answer. */
  lost(reason: string): void;
  close(): void;
}

/**
 * `svc devices watch`: the devices as they change, until Ctrl-C. On a terminal the table is redrawn; otherwise, and with
 * `--json`, every change is a line. Goes on over restarts of the relay.
 */
export async function watch(options: Options, context: CommandContext): Promise<void> {
  const relay = await openOperatorRelay(options, context);
  const over = new AbortController();
  const release = onSignals(() => over.abort(), context);
  const { stdout, env } = context;
  // Before the screen changes, because an unreachable relay is an ordinary error.
  const first = await read(relay, over.signal);
  const view = flag(options, '--json')
    ? jsonView(context)
    : stdout.isTTY && env.TERM !== 'dumb'
      ? screenView(relay, options, context)
      : lineView(context);
  try {
    view.show(first);
    await follow(relay, view, over);
  } finally {
    over.abort();
    release();
    view.close();
  }
}

async function read(relay: OperatorRelay, signal: AbortSignal): Promise<State> {
  const [answer, frozen] = await Promise.all([
    relay.call({ method: 'GET', path: '/relay/devices', signal }),
    freezeOf(relay, signal),
  ]);
  return { devices: devicesOf(answer, Date.now() / 1000), frozen };
}

/** Refreshes at every event about a device or a freeze, and every few seconds. */
async function follow(relay: OperatorRelay, view: View, over: AbortController): Promise<void> {
  const { signal } = over;
  let wake = new AbortController();
  const wakeUp = () => wake.abort();
  signal.addEventListener('abort', wakeUp);
  let isLost = false;

  async function watch(): Promise<void> {
    while (!signal.aborted) {
      wake = new AbortController();
      try {
        const state = await read(relay, signal);
        isLost = false;
        if (!signal.aborted) view.show(state);
      } catch (error) {
        if (signal.aborted) return;
        if (!mayRecover(error)) throw error;
        if (!isLost) view.lost((error as Error).message);
        isLost = true;
      }
      await pause(PERIOD, wake.signal);
    }
  }

  const events = followEvents({
    relay,
    signal,
    onEvent(event) {
      if (event === 'device' || event === 'freeze' || event === 'reset') wakeUp();
    },
    onLost: wakeUp,
  });
  try {
    await Promise.all([watch(), events]);
  } finally {
    over.abort();
    signal.removeEventListener('abort', wakeUp);
    await Promise.allSettled([events]);
  }
}

/** The table on a screen of its own, which leaves the text above the command as it was. */
function screenView(relay: OperatorRelay, _options: Options, context: CommandContext): View {
  const { stdout, env } = context;
  const style = createStyle(stdout, env);
  let devices: Device[] = [];
  let frozen: FreezeState | null = null;
  let trouble = '';

  function draw(): void {
    const width = stdout.columns || 80;
    const height = stdout.rows || 24;
    const now = new Date();
    const status = trouble === '' ? `${counted(devices)}  ${now.toLocaleTimeString()}` : style.yellow(trouble);
    const body =
      devices.length === 0
        ? [`No device is paired. Pair one with: ${context.program} pair`]
        : deviceLines(devices, now.getTime() / 1000, style, stdout);
    const banner = frozen
      ? [
          style.red(
            `${freezeText(frozen, now.getTime() / 1000)}. End it with: ${asInvoked(context.stdout, 'svc unfreeze')}`,
          ),
        ]
      : [];
    const room = Math.max(1, height - 4 - banner.length);
    const shown =
      body.length > room ? [...body.slice(0, room - 1), style.dim(`… ${body.length - room + 1} more lines`)] : body;
    const lines = [
      ...banner,
      `${style.bold(`Devices of ${relay.name}`)}  ${status}`,
      '',
      ...shown,
      '',
      style.dim('Ctrl-C ends.'),
    ];
    stdout.write(`\u001b[H${lines.map((text) => `${cutLine(text, width)}\u001b[K`).join('\r\n')}\u001b[J`);
  }

  stdout.write(ENTER);
  stdout.on?.('resize', draw);
  return {
    show(next) {
      ({ devices, frozen } = next);
      trouble = '';
      draw();
    },
    lost() {
      trouble = 'The relay does not answer; trying again.';
      draw();
    },
    close() {
      stdout.off?.('resize', draw);
      stdout.write(LEAVE);
    },
  };
}

const counted = (devices: Device[]): string => {
  const count = (state: Device['state']) => devices.filter((device) => device.state === state).length;
  return `${count('connected')} connected, ${count('stale')} stale, ${count('offline')} offline`;
};

/** A view of changes: `print` gets each change, and first the present state. */
function changeView(print: { first(devices: Device[]): void; change(change: Change, device: Device): void }) {
  let known: Map<string, Device> | undefined;
  return (devices: Device[]): void => {
    const before = known;
    known = new Map(devices.map((device) => [device.prefix, device]));
    if (!before) {
      print.first(devices);
      return;
    }
    for (const [prefix, device] of before) if (!known.has(prefix)) print.change('revoked', device);
    for (const device of devices) {
      const former = before.get(device.prefix);
      if (!former) print.change('paired', device);
      if (former && isReduced(former, device)) print.change('reduced', device);
      if (former ? former.state !== device.state : device.state !== 'offline') print.change(device.state, device);
    }
  };
}

const isReduced = (before: Device, { expiresAt, grants }: Device): boolean =>
  before.expiresAt !== expiresAt || JSON.stringify(before.grants) !== JSON.stringify(grants);

function lineView(context: CommandContext): View {
  const { stdout, env } = context;
  const style: Style = createStyle(stdout, env);
  const stamped = (text: string) => line(stdout, `${new Date().toLocaleTimeString('sv')}  ${text}`);
  const trip = ({ roundTrip }: Device) => (roundTrip === null ? '' : `, round trip ${Math.round(roundTrip)} ms`);
  let isLost = false;
  let shownFreeze: FreezeState | null = null;
  const changes = changeView({
    first(devices) {
      if (devices.length === 0) stamped('No device is paired.');
      for (const device of devices) stamped(`${nameOf(device)}: ${stateText(device, style)}${trip(device)}`);
    },
    change: (change, device) => stamped(`${nameOf(device)}: ${change}${trip(device)}`),
  });
  return {
    show({ devices, frozen }) {
      if (isLost) stamped('The relay answers again.');
      isLost = false;
      if (frozen?.since !== shownFreeze?.since) {
        stamped(frozen ? style.red(freezeText(frozen, Date.now() / 1000)) : 'No longer frozen.');
      }
      shownFreeze = frozen;
      changes(devices);
    },
    lost(reason) {
      isLost = true;
      stamped(`${reason}; trying again`);
    },
    close() {},
  };
}

/** One JSON object per line: `devices` first, then each change by its name, `freeze`, `lost` and `back`. */
function jsonView({ stdout }: CommandContext): View {
  const put = (event: string, rest: object) => printJson(stdout, { event, ts: Date.now() / 1000, ...rest });
  let isLost = false;
  let shownFreeze: FreezeState | null = null;
  const changes = changeView({
    first: (devices) => put('devices', { devices: devices.map(({ raw }) => raw) }),
    change: (change, { raw }) => put(change, { device: raw }),
  });
  return {
    show({ devices, frozen }) {
      if (isLost) put('back', {});
      isLost = false;
      changes(devices);
      if (frozen?.since !== shownFreeze?.since) put('freeze', frozen ? { frozen: true, ...frozen } : { frozen: false });
      shownFreeze = frozen;
    },
    lost(error) {
      isLost = true;
      put('lost', { error });
    },
    close() {},
  };
}
