import type { Args } from './args.ts';

/** Short texts for the phone's log. What was typed, copied or written to somebody is never in them. */

const show = (value: unknown): string => (typeof value === 'string' || typeof value === 'number' ? String(value) : '');

/** The value of one argument. */
export const named =
  (name: string) =>
  (args: Args): string =>
    Object.hasOwn(args, name) ? show(args[name]) : '';

export const node = (args: Args): string => show(args.nodeId ?? args.node_id);

export const place = (args: Args): string => node(args) || [show(args.x), show(args.y)].filter(Boolean).join(', ');

export const label = (args: Args): string => (typeof args.text === 'string' ? `"${args.text}"` : '');

export const length = (args: Args): string => (typeof args.text === 'string' ? `${args.text.length} characters` : '');

export const line = (args: Args): string =>
  show(args.direction) || [args.start_x, args.start_y, args.end_x, args.end_y].map(show).filter(Boolean).join(', ');
