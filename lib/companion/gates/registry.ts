import { ROUTES } from '../commands/index.ts';
import type { PhoneCommand } from '../types.ts';
import type { Refusal, Route } from './gate.ts';

export type Lookup = { kind: 'found'; route: Route } | Refusal;

/** Gate 1: a closed table; what is not in it does not exist (contract 03 §8.1). */
export function lookUp({ method, path }: Pick<PhoneCommand, 'method' | 'path'>): Lookup {
  const verb = String(method).toUpperCase();
  const route = ROUTES.find((row) => row.path === path && row.method === verb);
  if (route) return { kind: 'found', route };
  // The one path that says so: it has both of the methods there are (contract 03 §8.7).
  return path === '/clipboard' ? { kind: 'method-not-allowed' } : { kind: 'unknown-command' };
}
