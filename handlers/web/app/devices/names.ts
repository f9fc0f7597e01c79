import { type ReadonlySignal, signal } from '@preact/signals';
import type { App } from '../context.ts';

/** What a person calls a device in this browser. The relay lets its operator alone rename the devices of others. */
export interface OwnName {
  name: string;
  /** Whose it is; empty where nobody said. */
  person: string;
}

const MAX_NAMES = 200;
/** Characters of a name. */
export const MAX_NAME = 64;
const PLACE = 'device names';

type Names = Readonly<Record<string, OwnName>>;

/** The names that this browser has for devices, keyed by their ids, which outlive their tokens. */
export function createDeviceNames({ keep }: App) {
  const names = signal<Names>({});
  void keep.read<Names>(PLACE).then((stored) => {
    names.value = { ...stored, ...names.value };
  });

  return {
    names: names as ReadonlySignal<Names>,
    async set(deviceId: string, { name, person }: OwnName): Promise<void> {
      const own = { name: name.trim().slice(0, MAX_NAME), person: person.trim().slice(0, MAX_NAME) };
      names.value = await keep.change<Names>(PLACE, (stored = {}) => {
        const { [deviceId]: _, ...others } = stored;
        const kept = Object.entries(others).slice(-MAX_NAMES + 1);
        const isNamed = own.name !== '' || own.person !== '';
        return Object.fromEntries(isNamed ? [...kept, [deviceId, own]] : kept);
      });
    },
  };
}
