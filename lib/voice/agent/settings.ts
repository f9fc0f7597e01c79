import { RelayError } from '../../errors.ts';
import { isPrintable } from '../../kit/text.ts';
import { isMapping, type Mapping } from '../../kit/yaml.ts';
import { MAX_RATE, MIN_RATE } from '../limits.ts';
import { findProvider, isAgentProvider, requireProvider } from '../registry.ts';
import { booleanOf, isScalar } from '../section.ts';
import {
  flag,
  type Kind,
  oneOf,
  type RealtimeSettings,
  realtimeAlias,
  realtimeVoice,
  type SectionKind,
  text,
} from '../settings.ts';

/** How the answer of a background run reaches the user (contract 06 §7.1). */
export type ResultDelivery = 'speak_verbatim' | 'speak_when_idle' | 'notify_then_speak' | 'visual_only';

/** `realtime_voice:`, with the keys of the realtime agent (contract 06 §2.1). Times in milliseconds. */
export interface AgentSettings extends RealtimeSettings {
  promotionEnabled: boolean;
  promoteAfterMs: number;
  backgroundDefaultMode: 'promote' | 'foreground';
  spokenHandoff: boolean;
  /** 0: never. */
  progressSpokenAfterMs: number;
  progressRepeatMs: number;
  resultDelivery: ResultDelivery;
  /** Stored and reported: one runs at a time. */
  maxBackgroundRuns: number;
}

/** An integer, also written as text. In files, negative ones count as `min` when that is 0. */
function integer(min: number, max: number): Kind {
  const numberOf = (value: unknown): unknown =>
    typeof value === 'string' && /^[+-]?\d{1,15}$/.test(value.trim()) ? Number(value) : value;
  const isInRange = (number: unknown): number is number =>
    Number.isInteger(number) && (number as number) >= min && (number as number) <= max;
  return {
    read(value) {
      const number = numberOf(value);
      if (isInRange(number)) return number;
      return min === 0 && Number.isInteger(number) && (number as number) < 0 ? 0 : undefined;
    },
    check(value, name) {
      const number = numberOf(value);
      if (isInRange(number)) return number;
      throw new RelayError('invalid', `${name} must be an integer from ${min} to ${max}`);
    },
  };
}

const toggle: Kind = {
  read: flag.read,
  check: (value, name) => flag.check(value === 1 || value === 0 ? String(value) : value, name),
};

const provider: Kind = {
  read(value) {
    const id = realtimeAlias(String(value).trim());
    const found = findProvider(id);
    return found && isAgentProvider(found) ? id : undefined;
  },
  check: (value, name) => requireProvider(realtimeAlias(text(80).check(value, name) as string), 'agent').info.id,
};

const MAX_PROMOTE_AFTER = 120_000;
const MAX_PROGRESS = 600_000;

const { fields } = realtimeVoice;

export const realtimeAgent: SectionKind<AgentSettings> = {
  ...realtimeVoice,
  defaults: {
    ...realtimeVoice.defaults,
    promotionEnabled: true,
    promoteAfterMs: 6000,
    backgroundDefaultMode: 'promote',
    spokenHandoff: true,
    progressSpokenAfterMs: 0,
    progressRepeatMs: 30_000,
    resultDelivery: 'speak_verbatim',
    maxBackgroundRuns: 1,
  },
  fields: {
    ...fields,
    enabled: { ...fields.enabled, kind: toggle },
    provider: { ...fields.provider, kind: provider },
    sampleRate: { ...fields.sampleRate, kind: integer(MIN_RATE, MAX_RATE) },
    promotionEnabled: { names: ['promotion_enabled'], kind: toggle },
    promoteAfterMs: { names: ['promote_after_ms'], kind: integer(0, MAX_PROMOTE_AFTER) },
    backgroundDefaultMode: { names: ['background_default_mode'], kind: oneOf(['promote', 'foreground']) },
    spokenHandoff: { names: ['spoken_handoff'], kind: toggle },
    progressSpokenAfterMs: { names: ['progress_spoken_after_ms'], kind: integer(0, MAX_PROGRESS) },
    progressRepeatMs: { names: ['progress_repeat_ms'], kind: integer(0, MAX_PROGRESS) },
    resultDelivery: {
      names: ['result_delivery'],
      kind: oneOf(['speak_verbatim', 'speak_when_idle', 'notify_then_speak', 'visual_only']),
    },
    maxBackgroundRuns: { names: ['max_background_runs'], kind: integer(1, 4) },
  },
  unsupported: 'unsupported realtime agent config field(s)',
  fallsBackToRoot: true,
};

const MAX_HEADERS = 16;
const MAX_HEADER = 1024;
/** The relay sets these, or the connection depends on them. */
const RESERVED = /^(?:authorization|connection|content-length|host|sec-websocket-.*|transfer-encoding|upgrade)$/i;

/** `extra_headers` of what sections nest for a provider, the last section first. Those that cannot be sent are left out. */
export function extraHeaders(levels: readonly Mapping[]): Record<string, string> {
  const headers = levels.flatMap(({ extra_headers: given }) => (isMapping(given) ? Object.entries(given) : []));
  const usable = headers
    .map(([name, value]): [string, string] => [name.trim().toLowerCase(), isScalar(value) ? String(value).trim() : ''])
    .filter(([name, value]) => /^[a-z0-9-]{1,64}$/.test(name) && !RESERVED.test(name) && isHeaderValue(value));
  return Object.fromEntries(usable.slice(-MAX_HEADERS));
}

const isHeaderValue = (value: string): boolean => value !== '' && value.length <= MAX_HEADER && isPrintable(value);

/** `debug_audio_tap` of a section: whether rendered speech is kept as WAV files. */
export const keepsAudio = (section: Mapping): boolean => booleanOf(section.debug_audio_tap) === true;
