import { type Context, defineApp } from '../app.ts';
import { button, column, item, label, list, row, type View } from '../view.ts';

/** As many as are in sight together with the button under them. */
const MOST = 15;

interface Memory {
  basket: string[];
  orders: number;
}

const GOODS = [
  ['Kettle', '24.00'],
  ['Teapot', '31.50'],
  ['Cups, set of four', '18.00'],
  ['Earl Grey, 250 g', '7.90'],
  ['Sugar bowl', '12.00'],
] as const;

const shelf = ({ state, open }: Context<Memory>): View =>
  column(
    row(
      label('Tea shop'),
      button(`Basket (${state.basket.length})`, () => open('basket')),
    ),
    list(
      'goods',
      GOODS.map(([name, price]) => item([name, price], () => open('article', name))),
    ),
  );

function article({ page, state, set, back, open }: Context<Memory>): View {
  const take = () => set({ basket: [...state.basket, page.argument].slice(-MOST) });
  return column(
    label(page.argument),
    label(GOODS.find(([name]) => name === page.argument)?.[1] ?? ''),
    button('Add to basket', () => {
      take();
      back();
    }),
    button('Buy now', () => {
      take();
      open('basket');
    }),
  );
}

const basket = ({ state, set, open }: Context<Memory>): View =>
  column(
    label('Basket'),
    ...state.basket.map((name) => label(name)),
    button(
      'Pay',
      () => {
        set({ basket: [], orders: state.orders + 1 });
        open('thanks');
      },
      { id: 'pay', enabled: state.basket.length > 0 },
    ),
  );

export const shop = defineApp<Memory>({
  package: 'org.example.shop',
  label: 'Tea shop',
  start: () => ({ basket: [], orders: 0 }),
  screen(context) {
    switch (context.page.name) {
      case 'article':
        return article(context);
      case 'basket':
        return basket(context);
      case 'thanks':
        return column(label('Thank you'), label(`Orders so far: ${context.state.orders}`));
      default:
        return shelf(context);
    }
  },
});
