import { type ReadonlySignal, signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { createRequired } from './context.ts';

/** The place in the page: `#/chat/abc?tools=off` is screen `chat`, argument `abc`. */
export interface Place {
  screen: string;
  /** The part after the screen's name, decoded; empty without one. */
  argument: string;
  query: URLSearchParams;
}

export type Router = ReturnType<typeof createRouter>;

/** Router on the fragment of the address, since pages may be below any path and their server never sees a fragment. */
export function createRouter(home: string) {
  const place = signal(read());
  /** Name of the screen's content, such as that of a thread. */
  const title = signal('');

  function read(): Place {
    const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?', 2) as [string, string?];
    const [screen = '', ...rest] = path.split('/');
    return { screen: screen || home, argument: decode(rest.join('/')), query: new URLSearchParams(query) };
  }

  addEventListener('hashchange', () => {
    place.value = read();
  });

  return {
    place: place as ReadonlySignal<Place>,
    title,
    /** Goes to a screen; `replace` leaves no entry to go back to. */
    go(screen: string, argument = '', { replace = false } = {}): void {
      const target = hrefOf(screen, argument);
      if (replace) history.replaceState(history.state, '', target);
      else history.pushState(null, '', target);
      place.value = read();
    },
  };
}

/** The address of a screen, for links. */
export const hrefOf = (screen: string, argument = ''): string =>
  `#/${screen}${argument === '' ? '' : `/${encodeURIComponent(argument)}`}`;

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}

export const [ProvideRouter, useRouter] = createRequired<Router>('The router');

/** Puts the name of a screen's content into the title of the page while it is shown. */
export function useTitle(name: string): void {
  const { title } = useRouter();
  useEffect(() => {
    title.value = name;
    return () => {
      title.value = '';
    };
  }, [title, name]);
}
