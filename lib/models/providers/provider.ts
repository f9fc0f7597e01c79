import { RelayError } from '../../errors.ts';
import { isObject } from '../../kit/json.ts';
import type { Call } from '../call.ts';
import { type Effort, type EffortSource, readEfforts } from '../efforts.ts';

/** Base URL and credential of a provider. Never for responses or logs. */
export interface Target {
  /** Without a trailing slash. */
  base: string;
  secret?: string;
}

/** Looks up a model by the client's name for it; undefined if the provider does not list it. */
export type EffortLookup = (model: string) => Effort[] | undefined;

/**
 * A provider that can be queried for the abilities of its models (contract 07 §3, dynamic resolvers). One file per provider.
 */
export interface Provider {
  readonly source: EffortSource;
  readonly base: {
    /** Names in the profile's `.env`; the first one set wins. */
    variables: readonly string[];
    fallback: string;
    /** True if the profile's `model.base_url` applies too. */
    fromModel: boolean;
    /** True if `fallback` is on the host itself, and so unavailable at the edge. */
    onHost?: boolean;
  };
  readonly secret: {
    variables: readonly string[];
    /** Never queried without a secret. */
    required: boolean;
  };
  /** The queries for these models, each with the models that it covers; without it, one query lists all of them. */
  queries?(models: readonly string[]): Map<string, string[]>;
  /** Makes one query. Rejects when the response is unusable. */
  query(query: string, target: Target, call: Call): Promise<EffortLookup>;
}

export const bearer = ({ secret }: Target): Record<string, string> =>
  secret === undefined ? {} : { authorization: `Bearer ${secret}` };

/** A base URL without the `/v1` of its chat routes. */
export const withoutV1 = (base: string): string => base.replace(/\/v1$/, '').replace(/\/+$/, '');

/** The objects in the first of these members that is a list. Throws if none is. */
export function entriesOf(response: unknown, ...members: string[]): Record<string, unknown>[] {
  const lists = isObject(response) ? members.map((name) => response[name]) : [];
  const list = lists.find(Array.isArray);
  if (!list) throw new RelayError('bad-gateway', 'the response is not a catalog');
  return list.filter(isObject);
}

/** A nested member: undefined when the path is absent, null when it runs into a value without members. */
export function memberOf(value: unknown, ...path: string[]): unknown {
  let member = value;
  for (const name of path) {
    if (member === undefined || member === null) return undefined;
    if (!isObject(member)) return null;
    member = member[name];
  }
  return member ?? undefined;
}

/** Efforts of a listed model: an empty list if it has none, undefined if the list is not understood. */
export function effortsOf(list: unknown): Effort[] | undefined {
  if (list === undefined) return [];
  return Array.isArray(list) ? readEfforts(list) : undefined;
}
