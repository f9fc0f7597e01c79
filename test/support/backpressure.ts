import { onTestFinished } from 'vitest';
import type { Channel } from '../../lib/socket/channel.ts';
import { startBuiltTarget } from './built-relay.ts';
import { pair } from './relay.ts';

export const KiB = 1024;
export const MiB = 1024 * KiB;

/** A relay with a test channel, and a paired device. */
export async function start(probe: Channel) {
  const target = await startBuiltTarget({ channels: { probe } });
  onTestFinished(target.stop);
  const join = async () => {
    const { client } = await pair(target);
    onTestFinished(() => client.terminate());
    return client;
  };
  return { target, join };
}
