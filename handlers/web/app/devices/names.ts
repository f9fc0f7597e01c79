import type { App } from '../context.ts';
import { openRecord } from '../stored-record.ts';
import { MAX_NAME } from './max-name.ts';

/** A person's name for a device in this browser, since only the relay's operator may rename other devices there. */
export interface OwnName {
  name: string;
  /** Its owner; empty if unspecified. */
  person: string;
}

const MAX_NAMES = 200;

/** This browser's names for devices, keyed by device id, which outlives tokens. */
export function createDeviceNames(app: App) {
  const { entries: names, set, close } = openRecord<OwnName>(app, 'device names', MAX_NAMES);
  return {
    names,
    set(deviceId: string, { name, person }: OwnName): Promise<void> {
      const own = { name: name.trim().slice(0, MAX_NAME), person: person.trim().slice(0, MAX_NAME) };
      return set(deviceId, own.name !== '' || own.person !== '' ? own : undefined);
    },
    close,
  };
}
