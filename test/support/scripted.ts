import { expect } from 'vitest';
import type { Client } from './client.ts';
import { bearer, type Paired, post, type Target } from './relay.ts';

/** The commands that a scripted client receives. */
export interface Scripted<Command> {
  /** Received commands, in order. */
  commands: Command[];
  /** Resolves once the relay has handled everything sent so far. */
  settled(): Promise<void>;
  /** Resolves with the command at `index` (from 0) once it has arrived. */
  received(at?: number): Promise<Command>;
}

/** Follows the commands of one channel on a socket. */
export function followCommands<Command>(
  client: Client,
  channel: string,
  arrived: (command: Command) => void,
): Scripted<Command> {
  const commands: Command[] = [];
  const wakes = new Set<() => void>();
  client.socket.on('message', (data) => {
    const frame = JSON.parse(String(data));
    if (frame.channel !== channel || frame.type !== `${channel}.command`) return;
    commands.push(frame.payload);
    for (const wake of [...wakes]) wake();
    arrived(frame.payload);
  });
  return {
    commands,
    async settled() {
      const mark = crypto.randomUUID();
      client.send('system', 'ping', {}, mark);
      await client.next({ id: mark });
    },
    received(at = 0) {
      return new Promise((resolve) => {
        const look = () => {
          const command = commands[at];
          if (!command) return;
          wakes.delete(look);
          resolve(command);
        };
        wakes.add(look);
        look();
      });
    },
  };
}

/** Gives up a grant of a device; its socket stays. Resolves once the grant is gone. */
export async function giveUpGrant(
  target: Target,
  { token, prefix }: Pick<Paired, 'token' | 'prefix'>,
  grant: string,
): Promise<void> {
  const response = await target.fetch(`/sessions/${prefix}`, {
    ...post({ grants: { [grant]: 0.001 } }),
    method: 'PATCH',
    headers: bearer(token),
  });
  if (response.status !== 200) throw new Error(`reduce: ${response.status} ${await response.text()}`);
  const { grants } = (await response.json()) as { grants: Record<string, number> };
  await expect.poll(() => Date.now() / 1000).toBeGreaterThan(grants[grant] as number);
}
