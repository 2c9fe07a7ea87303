"""`threadfast status`: asks the running bot how it is and shows the answer."""
