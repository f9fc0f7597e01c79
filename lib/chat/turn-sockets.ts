import type { Connection } from '../socket/channel.ts';
import type { Payload } from '../socket/envelope.ts';

/** The part of a connection that turns use. */
export type TurnClient = Pick<
  Connection,
  'id' | 'session' | 'isOpen' | 'send' | 'sendError' | 'follow' | 'typedStream' | 'probe'
>;

/** Unsent bytes above which a socket gets no more events; below it again, it gets a snapshot in their place. */
const HIGH_WATER_MARK = 1024 * 1024;
const LOW_WATER_MARK = HIGH_WATER_MARK / 4;

/** The messages for one event of a turn, one per dialect. */
export interface Output {
  seq: number;
  typed?: { type: string; payload: Payload };
  legacy?: { type: string; payload: Payload };
}

/** A socket that gets the events of a turn. */
interface View {
  /** Id of the request that the events answer. */
  id: string;
  isBehind: boolean;
  hasMissed: boolean;
  unfollow(): void;
}

export interface TurnViewsDeps {
  turnId: string;
  /** False while the end of the turn is being stored, when it must not be shown. */
  mayShow(): boolean;
  /** Sends the present state of the turn. */
  sendSnapshot(client: TurnClient, id: string): void;
}

export type TurnViews = ReturnType<typeof createTurnViews>;

/**
 * The sockets that get the events of one turn. A socket that reads too slowly gets none until it has read the rest,
 * then a snapshot of the turn. So its memory is bounded, and neither the agent nor another socket waits for it.
 */
export function createTurnViews({ turnId, mayShow, sendSnapshot }: TurnViewsDeps) {
  const views = new Map<TurnClient, View>();

  function catchUp(client: TurnClient, view: View): void {
    if (view.isBehind || !view.hasMissed || !mayShow()) return;
    view.hasMissed = false;
    sendSnapshot(client, view.id);
  }

  function drop(client: TurnClient): void {
    views.get(client)?.unfollow();
    views.delete(client);
  }

  return {
    /** Sends a socket all later events, under the id of its latest request. */
    add(client: TurnClient, id: string): void {
      const known = views.get(client);
      if (known) {
        known.id = id;
        return;
      }
      const view: View = { id, isBehind: false, hasMissed: false, unfollow: () => {} };
      views.set(client, view);
      view.unfollow = client.follow({
        high: HIGH_WATER_MARK,
        low: LOW_WATER_MARK,
        pause() {
          view.isBehind = true;
        },
        resume() {
          view.isBehind = false;
          catchUp(client, view);
        },
      });
    },

    /** Sends a socket the present state of the turn: at once, or when it may be shown and the socket has drained. */
    show(client: TurnClient): void {
      const view = views.get(client);
      if (!view) return;
      view.hasMissed = true;
      catchUp(client, view);
    },

    deliver({ seq, ...forms }: Output): void {
      for (const [client, view] of views) {
        const send = client.typedStream ? forms.typed : forms.legacy;
        if (!send) continue;
        if (view.isBehind || view.hasMissed) view.hasMissed = true;
        else client.send('chat', send.type, { ...send.payload, seq, turn_id: turnId }, view.id);
      }
    },

    /** Sends a message outside the stream of events. */
    send(type: string, payload: Payload): void {
      for (const [client, { id }] of views) client.send('chat', type, { ...payload, turn_id: turnId }, id);
    },

    /** The turn may be shown again: sockets that missed something get it. Returns the others that are not behind. */
    shown(): TurnClient[] {
      const current: TurnClient[] = [];
      for (const [client, view] of views) {
        if (view.hasMissed) catchUp(client, view);
        else if (!view.isBehind) current.push(client);
      }
      return current;
    },

    /** The sockets, with the ids of their requests. */
    all: (): [client: TurnClient, id: string][] => [...views].map(([client, { id }]) => [client, id]),

    /** Id of the request that a socket's events answer. */
    idOf: (client: TurnClient): string | undefined => views.get(client)?.id,

    drop,

    /** No more events come: keeps only sockets that still need a snapshot. */
    close(): void {
      for (const [client, { hasMissed }] of [...views]) if (!hasMissed) drop(client);
    },

    dropAll(): void {
      for (const client of [...views.keys()]) drop(client);
    },
  };
}

export interface TurnFollowersDeps {
  /** Ids of the sockets that followed when the process went to sleep (edge). */
  slept: ReadonlySet<string>;
  /** Stores the ids; absent where the process lives as long as its sockets. */
  save?(ids: string[]): void;
}

/** The sockets that follow every turn of their family (`chat.follow`, contract 10 §1). */
export function createTurnFollowers({ slept, save }: TurnFollowersDeps) {
  const families = new Map<string, Set<TurnClient>>();

  const saveAll = () => save?.([...families.values()].flatMap((own) => [...own].map(({ id }) => id)));

  function add(client: TurnClient): void {
    const { family } = client.session;
    families.set(family, (families.get(family) ?? new Set()).add(client));
  }

  return {
    add(client: TurnClient): void {
      add(client);
      saveAll();
    },

    remove(client: TurnClient): void {
      const { family } = client.session;
      const own = families.get(family);
      if (!own?.delete(client)) return;
      if (own.size === 0) families.delete(family);
      saveAll();
    },

    /** A socket is restored after a sleep of the process. */
    restore(client: TurnClient): void {
      if (slept.has(client.id)) add(client);
    },

    /** Every socket that survived a sleep is restored. */
    restored: saveAll,

    announce(family: string, payload: Payload): void {
      for (const client of families.get(family) ?? []) client.send('chat', 'chat.turn', payload);
    },
  };
}
