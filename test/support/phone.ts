import { authenticate, bearer, type Paired, pair, post, type Target } from './relay.ts';

export interface Command {
  request_id: string;
  method: string;
  path: string;
  params: Record<string, unknown>;
  body: Record<string, unknown>;
}

type Script = (command: Command) => Record<string, unknown> | undefined;

/** Says what it was asked, as `result`. */
export const echo: Script = ({ method, path, params, body }) => ({
  status: 200,
  result: { method, path, params, body },
});
/** Never answers. */
export const silent: Script = () => undefined;

export interface Phone extends Paired {
  id: string;
  /** What it was sent, in order. */
  commands: Command[];
  /** How it answers from now on: a payload of `bridge.response`, or nothing. */
  script: Script;
  /** Reports itself; resolves when the relay has taken it in. */
  report(status?: Record<string, unknown>): Promise<void>;
  /** Answers a command. */
  answer(command: Command, payload: Record<string, unknown>): void;
  /** Resolves when the relay has taken in all that was sent so far. */
  settled(): Promise<void>;
  /** The command of that number (from 0), once it is there. */
  received(at?: number): Promise<Command>;
  headers: Record<string, string>;
}

interface PhoneOptions {
  device?: Record<string, unknown>;
  policy?: Record<string, unknown>;
  /** Its first report; null for a phone that does not report itself. */
  status?: Record<string, unknown> | null;
  script?: Script;
}

/** Pairs a scripted phone and reports it. */
export async function startPhone(target: Target, options: PhoneOptions = {}): Promise<Phone> {
  const id = (options.device?.device_id as string) ?? `phone-${crypto.randomUUID().slice(0, 8)}`;
  const paired = await pair(target, { policy: options.policy, device: { device_id: id, ...options.device } });
  return script(paired, id, options);
}

/** The same phone on one more socket. */
export async function reconnect(target: Target, phone: Phone, options: PhoneOptions = {}): Promise<Phone> {
  const { client, frame } = await authenticate(target, { session_token: phone.token, device_id: phone.id });
  return script({ ...phone, client, ok: frame }, phone.id, options);
}

/** Gives up the `bridge` grant of a device; its socket stays. Resolves when it is gone. */
export async function loseGrant(target: Target, { token, prefix }: Pick<Paired, 'token' | 'prefix'>): Promise<void> {
  const response = await target.fetch(`/sessions/${prefix}`, {
    ...post({ grants: { bridge: 0.001 } }),
    method: 'PATCH',
    headers: bearer(token),
  });
  if (response.status !== 200) throw new Error(`reduce: ${response.status} ${await response.text()}`);
}

async function script(paired: Paired, id: string, { status = { ts: 1 }, script = echo }: PhoneOptions): Promise<Phone> {
  const { client } = paired;
  const wakes = new Set<() => void>();
  const phone: Phone = {
    ...paired,
    id,
    commands: [],
    script,
    headers: bearer(paired.token),
    async report(status = { ts: 1 }) {
      client.send('bridge', 'bridge.status', status);
      await phone.settled();
    },
    answer({ request_id }, payload) {
      client.send('bridge', 'bridge.response', { request_id, ...payload });
    },
    async settled() {
      const mark = crypto.randomUUID();
      client.send('system', 'ping', {}, mark);
      await client.next({ id: mark });
    },
    received(at = 0) {
      return new Promise((resolve) => {
        const look = () => {
          const command = phone.commands[at];
          if (!command) return;
          wakes.delete(look);
          resolve(command);
        };
        wakes.add(look);
        look();
      });
    },
  };
  client.socket.on('message', (data) => {
    const { channel, type, payload } = JSON.parse(String(data));
    if (channel !== 'bridge' || type !== 'bridge.command') return;
    phone.commands.push(payload);
    for (const wake of [...wakes]) wake();
    const answer = phone.script(payload);
    if (answer) phone.answer(payload, answer);
  });
  if (status) await phone.report(status);
  return phone;
}
