import { authenticate, bearer, type Paired, pair, type Target } from './relay.ts';
import { followCommands, giveUpGrant, type Scripted } from './scripted.ts';

export interface Command {
  request_id: string;
  method: string;
  path: string;
  params: Record<string, unknown>;
  body: Record<string, unknown>;
}

type Script = (command: Command) => Record<string, unknown> | undefined;

/** Answers with the command as `result`. */
export const echo: Script = ({ method, path, params, body }) => ({
  status: 200,
  result: { method, path, params, body },
});
/** Never answers. */
export const silent: Script = () => undefined;

export interface Phone extends Paired, Scripted<Command> {
  id: string;
  /** Computes its answers from now on: a payload of `bridge.response`, or nothing. */
  script: Script;
  /** Sends a status; resolves once the relay has handled it. */
  report(status?: Record<string, unknown>): Promise<void>;
  /** Answers a command. */
  answer(command: Command, payload: Record<string, unknown>): void;
  headers: Record<string, string>;
}

interface PhoneOptions {
  device?: Record<string, unknown>;
  policy?: Record<string, unknown>;
  /** Its first status; null for a phone that sends none. */
  status?: Record<string, unknown> | null;
  script?: Script;
}

/** Pairs a scripted phone, which sends its status. */
export async function startPhone(target: Target, options: PhoneOptions = {}): Promise<Phone> {
  const id = (options.device?.device_id as string) ?? `phone-${crypto.randomUUID().slice(0, 8)}`;
  const paired = await pair(target, { policy: options.policy, device: { device_id: id, ...options.device } });
  return script(paired, id, options);
}

/** Connects the same phone on another socket. */
export async function reconnect(target: Target, phone: Phone, options: PhoneOptions = {}): Promise<Phone> {
  const { client, frame } = await authenticate(target, { session_token: phone.token, device_id: phone.id });
  return script({ ...phone, client, ok: frame }, phone.id, options);
}

/** Gives up a device's `bridge` grant; its socket stays. Resolves once the grant is gone. */
export const loseGrant = (target: Target, device: Pick<Paired, 'token' | 'prefix'>): Promise<void> =>
  giveUpGrant(target, device, 'bridge');

async function script(paired: Paired, id: string, { status = { ts: 1 }, script = echo }: PhoneOptions): Promise<Phone> {
  const { client } = paired;
  const phone: Phone = {
    ...paired,
    ...followCommands<Command>(client, 'bridge', (command) => {
      const answer = phone.script(command);
      if (answer) phone.answer(command, answer);
    }),
    id,
    script,
    headers: bearer(paired.token),
    async report(status = { ts: 1 }) {
      client.send('bridge', 'bridge.status', status);
      await phone.settled();
    },
    answer({ request_id }, payload) {
      client.send('bridge', 'bridge.response', { request_id, ...payload });
    },
  };
  if (status) await phone.report(status);
  return phone;
}
