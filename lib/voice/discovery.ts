import { type Upstream, upstreamReason } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { asObject, isObject, parseJson } from '../kit/json.ts';
import { decodeJsonText } from '../kit/long-json.ts';
import { visibleLine } from '../kit/text.ts';
import { withDeadline } from '../kit/timeouts.ts';
import { readUpTo } from '../web/streams.ts';
import { authHeaders, bearer } from './basic/call.ts';
import type { Credential } from './credentials.ts';
import { MAX_ID } from './limits.ts';

/** Milliseconds for one call, and for all pages of one list, since clients wait 15 s in total (contract 05 §3). */
const CALL_TIMEOUT = 5000;
const LIST_TIMEOUT = 10_000;
const MAX_BODY = 2 * 1024 * 1024;
const MAX_PAGES = 20;
const MAX_ITEMS = 2000;
const MAX_LABEL = 200;
/** Characters of a description beside a name; a longer one is a text to read. */
const MAX_DESCRIPTION = 60;
const MAX_TOKEN = 4096;

/** A model, voice or language that a provider listed. */
export interface Listed {
  id: string;
  label?: string;
  /** A few words of the provider about a voice. */
  description?: string;
}

/** Lists of a provider. */
export interface Discovered {
  isOk: boolean;
  models: Listed[];
  voices: Listed[];
  /** Voices that belong to the account. */
  customVoices: Listed[];
  languages: Listed[];
  /** Why a part is missing. */
  problems: string[];
}

export interface DiscoveryDeps {
  upstream: Upstream;
  clock: Clock;
  signal: AbortSignal;
}

/** A reply that is not a list. */
class Refusal extends Error {
  constructor(
    reason: string,
    readonly status?: number,
  ) {
    super(reason);
  }
}

/**
 * Requests xAI's voices, and those of the account (contract 05 §11). Never rejects: failures are in `problems`, without URL
 * and credential.
 */
export async function discoverXai(deps: DiscoveryDeps, { secret, baseUrl }: Credential): Promise<Discovered> {
  const headers = bearer(secret);
  const [voices, custom] = await Promise.all([
    listOf('voices', async (items) => {
      items.push(...voicesIn(await getJson(deps, `${baseUrl}/tts/voices`, headers)));
    }),
    listOf('custom voices', (items) => addCustomVoices(items, deps, `${baseUrl}/custom-voices`, headers)),
  ]);
  const isOk = voices.items.length + custom.items.length > 0;
  const problems = [...voices.problems, ...custom.problems];
  return {
    isOk,
    models: [],
    voices: voices.items,
    customVoices: custom.items.map((voice) => ({ id: voice.id, label: `${voiceLabel(voice)} (custom)` })),
    languages: [],
    problems: isOk || problems.length > 0 ? problems : ['no voices were listed'],
  };
}

/** Requests the account's voices from ElevenLabs, and the models that speak. Never rejects, like `discoverXai`. */
export async function discoverElevenlabs(deps: DiscoveryDeps, { secret, baseUrl }: Credential): Promise<Discovered> {
  const headers = { 'xi-api-key': secret };
  const languages: Listed[] = [];
  const [voices, models] = await Promise.all([
    listOf('voices', async (items) => {
      items.push(...voicesIn(await getJson(deps, `${baseUrl}/v1/voices`, headers)));
    }),
    listOf('models', async (items) => {
      const all = itemsIn(await getJson(deps, `${baseUrl}/v1/models`, headers), ['models', 'data', 'items']);
      for (const item of all) {
        if (isObject(item) && item.can_do_text_to_speech === false) continue;
        items.push(...listed(item, ['model_id', 'id'], ['name']));
        if (isObject(item)) languages.push(...languagesOf(item.languages));
      }
    }),
  ]);
  const problems = [...voices.problems, ...models.problems];
  return {
    isOk: problems.length < 2,
    models: models.items,
    voices: [],
    customVoices: voices.items,
    languages: languages.slice(0, MAX_ITEMS),
    problems,
  };
}

/**
 * Requests the models of an OpenAI-compatible server, and its voices, which few servers list (contract 05 §18). Never
 * rejects, like `discoverXai`.
 */
export async function discoverLocal(deps: DiscoveryDeps, { secret, baseUrl }: Credential): Promise<Discovered> {
  const headers = authHeaders(bearer, { secret });
  const [models, voices] = await Promise.all([
    listOf('models', async (items) => {
      const all = itemsIn(await getJson(deps, `${baseUrl}/models`, headers), ['data', 'models', 'items']);
      for (const item of all) items.push(...listed(item, ['id', 'name'], []));
    }),
    listOf('voices', async (items) => {
      const reply = getJson(deps, `${baseUrl}/audio/voices`, headers);
      items.push(...voicesIn(await emptyIf(reply, (status) => status < 500)));
    }),
  ]);
  const problems = [...models.problems, ...voices.problems];
  const isOk = problems.length < 2;
  return { isOk, models: models.items, voices: voices.items, customVoices: [], languages: [], problems };
}

/** The items that `load` adds, even if it fails in the end, and the reason of the failure. */
async function listOf(
  name: string,
  load: (items: Listed[]) => Promise<void>,
): Promise<{ items: Listed[]; problems: string[] }> {
  const items: Listed[] = [];
  const problems: string[] = [];
  try {
    await load(items);
  } catch (error) {
    problems.push(`${name}: ${error instanceof Refusal ? error.message : upstreamReason(error)}`);
  }
  return { items: items.slice(0, MAX_ITEMS), problems };
}

/** Adds every page of the account's voices. An account that may have none is not an error. */
async function addCustomVoices(
  items: Listed[],
  deps: DiscoveryDeps,
  url: string,
  headers: Record<string, string>,
): Promise<void> {
  const until = deps.clock.monotonic() + LIST_TIMEOUT;
  let token: string | undefined;
  for (let page = 0; page < MAX_PAGES && items.length < MAX_ITEMS; page++) {
    const query = token === undefined ? '' : `&pagination_token=${encodeURIComponent(token)}`;
    const timeout = Math.min(CALL_TIMEOUT, until - deps.clock.monotonic());
    const reply = getJson(deps, `${url}?limit=100${query}`, headers, timeout);
    const found = await emptyIf(reply, (status) => status === 403 || status === 404);
    items.push(...voicesIn(found));
    const next = isObject(found) ? textOf(found.pagination_token, MAX_TOKEN) : undefined;
    if (next === undefined || next === token) return;
    token = next;
  }
}

/** A reply, or an empty list for a status that means that the provider has no such list. */
const emptyIf = (reply: Promise<unknown>, isAbsent: (status: number) => boolean): Promise<unknown> =>
  reply.catch((error) => {
    if (error instanceof Refusal && error.status !== undefined && isAbsent(error.status)) return [];
    throw error;
  });

async function getJson(
  { upstream, clock, signal }: DiscoveryDeps,
  url: string,
  headers: Record<string, string>,
  timeout = CALL_TIMEOUT,
): Promise<unknown> {
  const timeoutError = () => new Refusal('no reply in time');
  return withDeadline({ clock, timeout, signal, timeoutError }, async (end) => {
    const reply = await upstream({
      method: 'GET',
      url,
      headers: { accept: 'application/json', ...headers },
      signal: end,
    });
    if (reply.status !== 200) throw new Refusal(`the provider answered ${reply.status}`, reply.status);
    const bytes = await readUpTo(reply.body, MAX_BODY + 1);
    if (bytes.length > MAX_BODY) throw new Refusal('the reply is too large');
    const value = parseJson((await decodeJsonText(bytes)) ?? '');
    if (value === undefined) throw new Refusal('the reply is not JSON');
    return value;
  });
}

const voicesIn = (value: unknown): Listed[] =>
  itemsIn(value, ['voices', 'custom_voices', 'data', 'items']).flatMap((item) => {
    const description = descriptionOf(item);
    const voices = listed(item, ['voice_id', 'id', 'voice'], ['name', 'display_name', 'label']);
    return description === undefined ? voices : voices.map((voice) => ({ ...voice, description }));
  });

/** The short description of a voice; ElevenLabs has it among the voice's labels. */
function descriptionOf(item: unknown): string | undefined {
  if (!isObject(item)) return undefined;
  const { descriptive, description } = asObject(item.labels) ?? {};
  const found = [item.description, descriptive, description].map((value) => textOf(value, MAX_DESCRIPTION));
  return found.find((text) => text !== undefined)?.replace(/\.$/, '');
}

/** `Rex - confident, clear`: the name of a voice, and the provider's short description where it gives one (contract 05 §11). */
export function voiceLabel({ id, label = capitalized(id), description }: Listed): string {
  return description === undefined || label.includes(' - ') ? label : `${label} - ${description}`;
}

/** A bare list, or the first of these members that is one. */
function itemsIn(value: unknown, members: readonly string[]): unknown[] {
  if (Array.isArray(value)) return value;
  const list = isObject(value) ? members.map((name) => value[name]).find(Array.isArray) : undefined;
  if (!list) throw new Refusal('the reply is not a list');
  return list;
}

/** An item as one entry, or as none if it has no usable id. */
function listed(item: unknown, ids: readonly string[], labels: readonly string[]): Listed[] {
  if (typeof item === 'string') return textOf(item, MAX_ID) === undefined ? [] : [{ id: item.trim() }];
  if (!isObject(item)) return [];
  const id = ids.map((name) => textOf(item[name], MAX_ID)).find((text) => text !== undefined);
  const label = labels.map((name) => textOf(item[name], MAX_LABEL)).find((text) => text !== undefined);
  return id === undefined ? [] : [{ id, ...(label !== undefined && { label }) }];
}

const languagesOf = (list: unknown): Listed[] =>
  Array.isArray(list) ? list.flatMap((item) => listed(item, ['language_id'], ['name'])) : [];

/** Visible text of one line; undefined if it is blank, too long or not text. */
function textOf(value: unknown, max: number): string | undefined {
  const text = typeof value === 'string' ? visibleLine(value).trim() : '';
  return text !== '' && text.length <= max ? text : undefined;
}

/** `eve` as `Eve`. */
const capitalized = (id: string): string => id.charAt(0).toUpperCase() + id.slice(1);
