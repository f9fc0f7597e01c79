import { type Signal, signal } from '@preact/signals';
import { asObject } from '../../../lib/kit/json.ts';
import { LANGUAGES, preferredLanguage } from '../shared/i18n.ts';

/** Only the host decides how long a session lasts. */
export const AS_HOST_SAYS = -1;

/** Settings of this browser by their keys, with their defaults (specification 2.1 and 8). */
export const DEFAULTS = {
  theme: 'system',
  /** Use the accent colour of the system. */
  dynamic_colors: true,
  /** A language of `shared/i18n.ts`, or that of the browser. */
  language: 'system',
  /** Name of this browser among the devices of the relay; empty for its own name, such as `Firefox on Android`. */
  device_name: '',
  /** True if somebody acknowledged in this browser what plain http means. */
  insecure_ack_seen: false,
  /** Why plain http is acceptable here, or empty. */
  insecure_reason: '',
  /** One-time consent to pairing if every route is plain http, like the only route of a page over http. */
  all_insecure_pair_ack_seen: false,
  /** True if the inbox no longer needs to offer notifications. */
  knock_hint_seen: false,
  /** Last chosen lifetime of a session in seconds, 0 for no end. */
  pair_ttl_seconds: AS_HOST_SAYS,
  /** Largest file to load, MB. */
  max_inbound_mb: 25,
  /** Largest file that chats and messages load automatically, MB. */
  auto_fetch_mb: 2,
  /** True if they also do so over a mobile network. */
  auto_fetch_on_cellular: false,
  tool_display: 'detailed',
  /** Show the model's reasoning in a chat. */
  show_reasoning: true,
  /** Show the tokens of each answer, if the agent reports them. */
  show_token_usage: true,
  /** True if voice is a live conversation whenever the relay has a provider for one. */
  voice_live: false,
  /** True if a live conversation detects speech itself, rather than only while the button is pressed. */
  voice_hands_free: true,
  /** True if a live conversation shows its captions. */
  voice_captions: true,
  /** Provider and voice of spoken answers, and of a live conversation; empty for the relay's. */
  voice_spoken_voice: '',
  voice_live_voice: '',
  /** Speed of spoken answers, in percent. */
  voice_speed: 100,
  /** Tag of the language of spoken answers; empty for the relay's. */
  voice_language: '',
  /** Size of the terminal's text in pixels. */
  terminal_font_size: 14,
  /** Own keys of the terminal's key row, as `terminal/keys.ts` reads them. */
  terminal_keys: '',
  /** True if the terminal provides its text to screen readers. */
  terminal_screen_reader: false,
  /** Minutes hidden after which a page with a passkey lock is locked. */
  lock_after_minutes: 5,
  /** The agent's id of the conversation that was last open here. */
  last_session: '',
  /** True if the settings show their keys and defaults. */
  settings_details: false,
  /** True once the introduction after the first pairing was read. */
  onboarding_complete: false,
  /** Version of the page whose news was seen. */
  last_seen_version: '',
};

export type SettingValues = typeof DEFAULTS;

const DAY = 86_400;

/** Choices of the settings that have fixed ones. */
export const CHOICES = {
  theme: ['system', 'light', 'dark'],
  language: ['system', ...Object.keys(LANGUAGES)],
  insecure_reason: ['', 'lan_only', 'tailscale_vpn', 'local_dev'],
  tool_display: ['off', 'compact', 'detailed'],
  pair_ttl_seconds: [AS_HOST_SAYS, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY, 0],
} as const satisfies Partial<Record<keyof SettingValues, readonly (string | number)[]>>;

/** Smallest and largest value of the numbers that can be typed. */
export const RANGES = {
  max_inbound_mb: [5, 100],
  auto_fetch_mb: [0, 50],
  terminal_font_size: [8, 32],
  lock_after_minutes: [0, 60],
  voice_speed: [50, 200],
} as const satisfies Partial<Record<keyof SettingValues, readonly [number, number]>>;

/** For a text without choices. */
const MAX_TEXT = 256;

/** True if a stored or restored value is valid for a setting. */
export function isAllowed(key: string, value: unknown): boolean {
  if (!Object.hasOwn(DEFAULTS, key) || typeof value !== typeof DEFAULTS[key as keyof SettingValues]) return false;
  const choices: readonly unknown[] | undefined = CHOICES[key as keyof typeof CHOICES];
  if (choices) return choices.includes(value);
  const range: readonly [number, number] | undefined = RANGES[key as keyof typeof RANGES];
  if (range) return Number.isInteger(value) && (value as number) >= range[0] && (value as number) <= range[1];
  return typeof value !== 'string' || value.length <= MAX_TEXT;
}

export type Settings = ReturnType<typeof openSettings>;

const PLACE = 'svc settings';

/** Settings stored in this browser, readable before the first render. */
export function openSettings() {
  const stored = read();
  const entries = Object.entries(DEFAULTS).map(([key, fallback]) => {
    return [key, signal(isAllowed(key, stored[key]) ? stored[key] : fallback)];
  });
  const values = Object.fromEntries(entries) as { readonly [Key in keyof SettingValues]: Signal<SettingValues[Key]> };

  const all = (): Record<string, unknown> =>
    Object.fromEntries(Object.entries(values).map(([name, { value }]) => [name, value]));

  /** Another tab may have stored other settings meanwhile. */
  function store(changed: readonly string[]): void {
    const others = Object.entries(read()).filter(([name, value]) => !changed.includes(name) && isAllowed(name, value));
    try {
      localStorage.setItem(PLACE, JSON.stringify({ ...all(), ...Object.fromEntries(others) }));
    } catch {
      // In a browser without storage, the values last until the page is closed.
    }
  }

  /** After an upgrade to an encrypted connection, there is no reason for a plain one. */
  function forgetReason(): void {
    if (location.protocol === 'https:') values.insecure_reason.value = '';
  }

  forgetReason();
  return {
    values,
    /** All settings, for a backup. */
    all,
    set<Key extends keyof SettingValues>(key: Key, value: SettingValues[Key]): void {
      values[key].value = value;
      store([key]);
    },
    /** Takes the valid values of a backup; all others stay. */
    replace(stored: Readonly<Record<string, unknown>>): void {
      const valid = Object.entries<Signal<unknown>>(values).filter(([name]) => isAllowed(name, stored[name]));
      for (const [name, own] of valid) own.value = stored[name];
      forgetReason();
      store(valid.map(([name]) => name));
    },
  };
}

function read(): Record<string, unknown> {
  try {
    return asObject(JSON.parse(localStorage.getItem(PLACE) ?? '{}')) ?? {};
  } catch {
    return {};
  }
}

/** The language for a setting. */
export const languageOf = (setting: string): string => (setting === 'system' ? preferredLanguage() : setting);

/** Applies theme and colours to the page. */
export function applyLook({ theme, dynamic_colors: isDynamic }: Settings['values']): void {
  const { dataset } = document.documentElement;
  if (theme.value === 'system') delete dataset.theme;
  else dataset.theme = theme.value;
  dataset.accent = isDynamic.value ? 'system' : 'own';
}
