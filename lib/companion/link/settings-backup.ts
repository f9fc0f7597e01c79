import * as v from 'valibot';
import { RelayError } from '../../errors.ts';
import type { JsonObject } from '../../kit/json.ts';
import type { Backup } from '../backup.ts';
import type { SafetySettings, SettingsChange } from '../safety-settings.ts';
import { readRules, TriggersSchema } from '../triggers.ts';
import {
  DeviceIdSchema,
  emptyPolicy,
  PairingSchema,
  SafetySchema,
  type SettingsDocument,
  safetyOf,
  withSettings,
} from './settings-document.ts';

const { entries } = SafetySchema;

/** The log of trigger activity stays with the phone. */
const SharedTriggersSchema = v.pipe(
  v.partial(v.omit(TriggersSchema, ['notification_trigger_activity_log_json'])),
  v.check(({ notification_trigger_rules_json: json }) => json === undefined || readRules(json).problem === undefined),
);

/**
 * Settings that move between companions: their keys in a backup, their names here, and their schemas. The master
 * toggle, unattended access and grants do not move, since they belong to this phone and its relay (contract 03 §8.2).
 */
const SHARED = {
  messages_enabled: ['messagesEnabled', entries.messagesEnabled],
  blocklist: ['blocklist', entries.blocklist],
  destructive_verbs: ['destructiveVerbs', entries.destructiveVerbs],
  bridge_trusted_destructive_verbs: ['trustedVerbs', entries.bridge_trusted_destructive_verbs],
  auto_disable_minutes: ['autoDisableMinutes', entries.autoDisableMinutes],
  confirmation_timeout_seconds: ['confirmationTimeoutSeconds', entries.confirmationTimeoutSeconds],
  notification_triggers: ['triggers', SharedTriggersSchema],
} as const;

type SharedKey = keyof typeof SHARED;
const isShared = (key: string): key is SharedKey => Object.hasOwn(SHARED, key);

/**
 * Reads settings by their shared keys. `known` are the keys of `change` as given, and `ignored` those that this companion
 * does not know.
 * @throws RelayError `invalid` if any value is invalid; then none is used.
 */
export function readSharedSettings(settings: JsonObject) {
  const known = Object.keys(settings).filter(isShared);
  const entries = known.map((key) => {
    const [name, schema] = SHARED[key];
    const read = v.safeParse(schema, settings[key]);
    if (!read.success || read.output === undefined) throw new RelayError('invalid', `${key} has no usable value`);
    return [name, read.output] as const;
  });
  const change: SettingsChange = Object.fromEntries(entries);
  return { change, known, ignored: Object.keys(settings).filter((key) => !isShared(key)) };
}

/** The settings that move between companions, by their shared keys. */
function sharedSettings(settings: SafetySettings): JsonObject {
  const { notification_trigger_activity_log_json: _, ...triggers } = settings.triggers;
  const shared = { ...settings, triggers };
  return Object.fromEntries(Object.entries(SHARED).map(([key, [name]]) => [key, shared[name]]));
}

/** Result of an import. */
export interface Restored {
  /** Keys of settings. */
  settings: string[];
  /** Keys of settings that this companion does not know. */
  ignored: string[];
  pairing: boolean;
}

/** The content of a backup of this document: settings, pairing and device id, but no grants (contract 03 §8.2). */
export function backupOf(document: SettingsDocument): Backup {
  const { pairing, device_id: deviceId } = document;
  return { settings: sharedSettings(safetyOf(document)), pairing: pairing && { ...pairing }, deviceId };
}

/**
 * The document after an import. A pairing replaces the present one and its device id, since the relay renews the tokens
 * of that device only. It grants nothing.
 * @throws RelayError `invalid` for a backup that this companion cannot use.
 */
export function restoredFrom(
  { settings, pairing, deviceId }: Backup,
  document: SettingsDocument,
): { document: SettingsDocument; restored: Restored } {
  const { change, known, ignored } = readSharedSettings(settings);
  const restored = { settings: known, ignored, pairing: pairing !== null };
  const next = withSettings(document, change);
  if (!pairing) return { document: next, restored };
  const read = v.safeParse(PairingSchema, pairing);
  if (!read.success) throw new RelayError('invalid', 'the pairing in it is not usable here');
  const id = v.is(DeviceIdSchema, deviceId) ? deviceId : document.device_id;
  return { document: { ...next, device_id: id, pairing: read.output, policy: emptyPolicy(id) }, restored };
}
