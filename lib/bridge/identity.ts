import { firstString } from '../dispatch/first-string.ts';
import { UNNAMED } from '../sessions/device.ts';
import type { Device as SessionDevice } from '../sessions/session.ts';
import type { Payload } from '../socket/envelope.ts';

/** A phone's identity (contract 03 §1.2). */
export interface Identity {
  id: string;
  /** Source of the id; only an id of the session is authenticated. */
  source: 'session' | 'payload' | 'socket';
  name: string;
  surface: string;
  formFactor: string;
  /** The names that a selector may use: sorted, unique, not empty. */
  aliases: readonly string[];
}

/** The text in lower case, reduced to `a-z0-9`. */
export const normalise = (text: string): string => text.toLowerCase().replace(/[^a-z0-9]/g, '');

/** The id that a `bridge.status` claims for its sender. */
const claimedId = (status: Payload): string | undefined =>
  firstString(status.device, ['device_id', 'deviceId', 'id']) ?? firstString(status, ['device_id', 'deviceId', 'id']);

const claimedName = (status: Payload): string | undefined =>
  firstString(status.device, ['display_name', 'displayName', 'name', 'model']) ??
  firstString(status, ['device_name', 'deviceName']);

const known = (text: string, nothing: string): string | undefined =>
  text === '' || text === nothing ? undefined : text;

/**
 * Identifies a reporting phone by its session, else by its report, else by its socket. `mayClaim` rejects an id from the
 * report that belongs to another phone.
 */
export function identify(
  device: SessionDevice,
  status: Payload,
  socketId: string,
  mayClaim: (id: string) => boolean = () => true,
): Identity {
  const own = known(device.id, 'unknown');
  const claimed = own === undefined ? claimedId(status) : undefined;
  const accepted = claimed !== undefined && mayClaim(claimed) ? claimed : undefined;
  const id = own ?? accepted ?? `ws-${socketId}`;
  const name = known(device.name, UNNAMED) ?? claimedName(status) ?? id;
  const { surface, formFactor } = device;
  return {
    id,
    source: own !== undefined ? 'session' : accepted !== undefined ? 'payload' : 'socket',
    name,
    surface,
    formFactor,
    aliases: aliasesOf({ id, name, surface, formFactor }),
  };
}

const NOTE = /notemax|boox|onyx/;
const FOLD = /pixel|fold/;
const TABLETS = new Set(['tablet', 'eink', 'boox']);

/** The names of a phone: its id and name, both also normalised, and names that its make suggests (contract 03 §1.2). */
export function aliasesOf({
  id,
  name,
  surface,
  formFactor,
}: Pick<Identity, 'id' | 'name' | 'surface' | 'formFactor'>): string[] {
  const aliases = new Set([id, name, normalise(id), normalise(name)]);
  const hay = normalise(id + name + surface + formFactor);
  const add = (...more: string[]) => {
    for (const alias of more) aliases.add(alias);
  };
  if (NOTE.test(hay)) add('boox', 'notemax', 'note', 'tablet');
  if (FOLD.test(hay)) add('phone', 'fold', 'pixel');
  if (formFactor === 'phone') add('phone');
  if (TABLETS.has(formFactor)) add('tablet');
  aliases.delete('');
  return [...aliases].sort();
}
