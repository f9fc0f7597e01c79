import { expect } from 'vitest';
import type { Target } from './relay.ts';

// biome-ignore lint/suspicious/noExplicitAny: each test knows what it asked for
export type Body = any;
export const replies = async (target: Target, query = '?timeout=0'): Promise<Body[]> => {
  const response = await target.operator(`/phone/replies${query}`);
  expect(response.status).toBe(200);
  return ((await response.json()) as Body).replies;
};
